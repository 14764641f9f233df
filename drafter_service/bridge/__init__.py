"""Drafting for a target that has another tokenizer than the drafter."""
