"""From a pass's logits to the candidates of its slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from drafter_service.models.port import FILLED, BlockRequest
from drafter_service.proposals.lattice import BlockScores


def candidates(
    logits: Tensor, requests: Sequence[BlockRequest], count: int, mask: int | None, eos: int
) -> tuple[Tensor, Tensor]:
    """Return the best count candidates' log q and tokens, [rows, count] each; changes logits.

    logits [rows, vocabulary] are of the requests' slots, one after the other. The mask token, if
    there is one, is none of them; EOS always is.
    """
    row = 0
    for r in requests:
        for slot, token in enumerate(r.filled):
            if token >= 0:
                logits[row + slot] = FILLED
                logits[row + slot, token] = 0.0
        row += r.num_slots
    if mask is not None:
        logits[:, mask] = -torch.inf
    log_q = torch.log_softmax(logits, dim=-1)
    best, tokens = log_q.topk(count, dim=-1)
    # EOS takes the place of the least of them where it is not among the best.
    missing = (tokens != eos).all(dim=1)
    tokens[:, -1].masked_fill_(missing, eos)
    best[:, -1] = torch.where(missing, log_q[:, eos], best[:, -1])
    return best, tokens


def block_scores(
    logits: Tensor, requests: Sequence[BlockRequest], count: int, mask: int | None, eos: int
) -> list[BlockScores]:
    """Return each request's candidates (see candidates) as scores without edges."""
    found = candidates(logits, requests, count, mask, eos)
    log_q, tokens = (part.cpu().numpy() for part in found)
    ends = accumulate(r.num_slots for r in requests)
    return [
        BlockScores(tokens[end - r.num_slots : end], log_q[end - r.num_slots : end])
        for r, end in zip(requests, ends, strict=True)
    ]
