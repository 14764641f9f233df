"""The papers' settings on a drafter whose block is half as long as theirs."""

from __future__ import annotations

from typing import Any

# Tokens of the longest path that the drafter's mask slots allow; DiffuSpec's k_max is 30.
K = 15
# DiffuSpec Sec. 5: beam, tau, M_max and lambda.
SEARCH: dict[str, Any] = {"beam": 3, "tau": 0.8, "max_candidates": 15, "weight": 0.5}
# Sec. 5 has k from 20 to 30 and delta = 10: the same shares of a block half as long.
ADL: dict[str, Any] = {"name": "diffuspec", "k_min": 10, "k_max": K, "delta": 5.0, "rho": 0.5}
# Tokens that the autoregressive baseline drafts, a pass for each: its own best is among them, and
# the longest is the diffusion drafter's.
SPS_LENGTHS = (4, 8, K)


def fixed(k: int) -> dict[str, Any]:
    """Return the length controller that always asks for k tokens."""
    return {"name": "fixed", "k": k}
