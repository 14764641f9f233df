"""From a pass's logits to the candidates of its slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from drafter_service.models.port import FILLED, BlockRequest
from drafter_service.proposals.lattice import BlockScores
from foredraft.noise.gumbel import gumbel_single, hash_torch
from foredraft.noise.streams import stream_key


def candidates(
    logits: Tensor, requests: Sequence[BlockRequest], count: int, mask: int | None, eos: int
) -> tuple[Tensor, Tensor]:
    """Return count candidates' log q and tokens, [rows, count] each, best first; changes logits.

    Which ones, the requests' sampling decides (DiffusionLM.draft). logits [rows, vocabulary] are of
    the requests' slots, one after the other. The mask token, if there is one, is none of them; EOS
    always is.
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
    row = 0
    for r in requests:
        if r.sampling.temperature > 0 and r.num_slots:
            slots = slice(row, row + r.num_slots)
            best[slots], tokens[slots] = _drawn(log_q[slots], r, count, eos)
        row += r.num_slots
    # EOS takes the place of the least of them where it is not among the best.
    missing = (tokens != eos).all(dim=1)
    tokens[:, -1].masked_fill_(missing, eos)
    best[:, -1] = torch.where(missing, log_q[:, eos], best[:, -1])
    return best, tokens


def _drawn(log_q: Tensor, r: BlockRequest, count: int, eos: int) -> tuple[Tensor, Tensor]:
    """Return the log q of EOS and of the tokens with the greatest log q / T + g, best first, and
    these tokens: of a request's slots [slots, vocabulary].

    In single precision: which tokens are candidates is no part of what target and drafter share.
    """
    first = r.start + len(r.tokens)
    keys = [stream_key(r.sampling.seed, first + slot) for slot in range(r.num_slots)]
    device = log_q.device
    bits = hash_torch(
        torch.tensor(keys, device=device)[:, None],
        torch.arange(log_q.shape[1], device=device),
    )
    noisy = log_q / r.sampling.temperature + gumbel_single(bits)
    noisy[:, eos] = torch.inf
    tokens = noisy.topk(count, dim=-1).indices
    best, order = log_q.gather(1, tokens).sort(dim=-1, descending=True, stable=True)
    return best, tokens.gather(1, order)


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
