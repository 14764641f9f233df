"""Teaches a block-diffusion drafter for a target: the target's own texts, training, evaluation."""
