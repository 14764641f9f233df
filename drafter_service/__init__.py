"""Drafter service: proposes tokens for the verifier to check."""
