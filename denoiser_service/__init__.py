"""Serves a diffusion language model as the target: blocks of slots, denoised state by state."""
