"""A block's scores over the drafter's tokens, spelled in the target's. Pure.

A diffusion model's slots are places in the drafter's own spelling of a text. Its likeliest path is
written in the target's tokens, by the target's tokenizer (string level). Wherever one of these
begins where a slot begins, it stands for the path's candidate of the slot. The slot's other
candidates stand beside it: one that both vocabularies have as itself (token level: TLI, Timor et
al. 2025), any other as the first of the target's tokens that say it.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from drafter_service.bridge.pair import NOTHING, Pair
from drafter_service.models.port import FILLED
from drafter_service.proposals.lattice import BlockScores, Floats, Ints
from drafter_service.proposals.proposals import walk
from foredraft.types import SamplingParams

_INSIDE = -1


def respelled(scores: BlockScores, pair: Pair, begun: bytes = b"") -> BlockScores:
    """Return a slot for each of the target's tokens on scores' likeliest path, as many at most.

    Candidates that are one token of the target's have their mass together. begun is what of the
    first slot's token the text has already; it is one that begins so.
    """
    first = pair.first[scores.tokens]
    if begun:
        first[0] = pair.first_after(scores.tokens[0].tolist(), begun)
    unsaid = first == NOTHING
    scores = BlockScores(scores.tokens, np.where(unsaid, FILLED, scores.log_q), scores.edge)
    path, columns = walk(scores, SamplingParams(), 0, pair.drafter_eos)
    tokens, slots = (part[: len(scores.tokens)] for part in _aligned(path, pair, begun))
    on_path = np.array(columns)
    ids, log_q = first[slots], scores.log_q[slots]
    ids[np.arange(len(slots)), on_path[slots]] = tokens
    inside = slots == _INSIDE
    ids[inside], log_q[inside] = pair.target_eos, FILLED
    ids[inside, 0], log_q[inside, 0] = tokens[inside], 0.0
    ids, log_q, order = _merged(ids, log_q, pair.target_eos)
    edge = None if scores.edge is None else _edges(scores.edge, slots, on_path, order)
    return BlockScores(ids, log_q, edge)


def _aligned(path: list[int], pair: Pair, begun: bytes) -> tuple[Ints, Ints]:
    """Return the path in the target's tokens, and for each the slot that begins where it begins.

    A token that begins inside a slot's is _INSIDE.
    """
    ended = path[-1] == pair.drafter_eos
    spelled = [pair.spelled[token] for token in (path[:-1] if ended else path)]
    if spelled:
        spelled[0] = spelled[0][len(begun) :]
    places = accumulate(map(len, spelled), initial=0)
    begins = {at: slot for at, slot in zip(places, range(len(path)), strict=False)}
    tokens = pair.target.write(b"".join(spelled))
    lengths = [len(pair.target.spelling[token]) for token in tokens]
    slots = [begins.get(at, _INSIDE) for at in accumulate(lengths, initial=0)]
    if ended or not tokens:
        tokens.append(pair.target_eos)
    return np.array(tokens), np.array(slots[: len(tokens)])


def _merged(ids: Ints, log_q: Floats, eos: int) -> tuple[Ints, Floats, Ints]:
    """Return ids [d, M] without repetitions or NOTHING, best first, their mass, and their columns.

    A slot with fewer than others is filled up with a token that will not be chosen.
    """
    same = ids[:, :, None] == ids[:, None, :]
    mass = (same * np.exp(log_q)[:, None, :]).sum(2)
    again = (same.argmax(2) != np.arange(ids.shape[1])) | (ids == NOTHING)
    # What is not a number stays so, for the engine to find.
    merged = np.log(mass, out=np.full_like(mass, FILLED), where=mass != 0)
    merged[again] = -np.inf
    order = np.argsort(-merged, axis=1, kind="stable")[:, : int((~again).sum(1).max())]
    rows = np.arange(len(ids))[:, None]
    again = again[rows, order]
    filler = 1 if eos == 0 else 0
    ids = np.where(again, filler, ids[rows, order])
    return ids, np.where(again, FILLED, merged[rows, order]), order


def _edges(edge: Floats, slots: Ints, on_path: Ints, order: Ints) -> Floats:
    """Return edge [k, M, M] for rows of slots whose columns are those of order [d, w].

    A row whose predecessor is not the slot before its own follows the path there; one that is
    inside a slot follows whatever is before it.
    """
    before = on_path[np.maximum(slots - 1, 0)][:, None].repeat(order.shape[1], 1)
    follows = np.flatnonzero((slots[1:] > 0) & (slots[1:] == slots[:-1] + 1)) + 1
    before[follows] = order[follows - 1]
    picked = edge[slots[:, None, None], before[:, :, None], order[:, None, :]]
    return np.where((slots == _INSIDE)[:, None, None], 0.0, picked)
