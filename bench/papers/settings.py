"""The papers' settings on drafters whose blocks are half as long as theirs, and less."""

from __future__ import annotations

from typing import Any

# DiffuSpec Sec. 5: beam, tau, M_max and lambda.
SEARCH: dict[str, Any] = {"beam": 3, "tau": 0.8, "max_candidates": 15, "weight": 0.5}
# Tokens of the autoregressive baseline's shorter drafts, a pass for each; the longest are whole
# blocks, as the diffusion drafter's.
SPS_LENGTHS = (4, 8)
# DiffuSpec Sec. 5 has k from 20 to 30 and delta = 10.
_LEAST, _DELTA = 2 / 3, 1 / 3


def fixed(k: int) -> dict[str, Any]:
    """Return the length controller that always asks for k tokens."""
    return {"name": "fixed", "k": k}


def adl(block: int) -> dict[str, Any]:
    """Return DiffuSpec's controller with the paper's shares of a block's tokens."""
    least, delta = round(_LEAST * block), _DELTA * block
    return {"name": "diffuspec", "k_min": least, "k_max": block, "delta": delta, "rho": 0.5}
