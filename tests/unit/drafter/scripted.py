"""Diffusion models whose answers are written down, and shorthands for the records around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from drafter_service.core.lattice import BlockScores
from drafter_service.engine import DrafterEngine
from drafter_service.model.port import BlockRequest, Capabilities
from drafter_service.strategies import Argmax
from foredraft.prefix import hash_prefix
from foredraft.types import Base, DraftOpen, ModelInfo, Proposal, Propose, SamplingParams

EOS = 0
INFO = ModelInfo(16, 64, "hash", "scripted", "scripted")
Script = Callable[[tuple[int, ...], int], BlockScores]


def scores_of(
    rows: Sequence[dict[int, float]], edges: dict[tuple[int, int, int], float] | None = None
) -> BlockScores:
    """BlockScores from {token: probability} per slot; edges maps (slot, previous, token)."""
    width = max(len(row) for row in rows)
    ranked = [sorted(row.items(), key=lambda item: -item[1]) for row in rows]
    padded = [row + [(EOS, 1e-9)] * (width - len(row)) for row in ranked]
    tokens = np.array([[t for t, _ in row] for row in padded], dtype=np.int64)
    log_q = np.log(np.array([[p for _, p in row] for row in padded]))
    if edges is None:
        return BlockScores(tokens, log_q)
    edge = np.zeros((len(rows), width, width))
    for slot in range(1, len(rows)):
        for p, previous in enumerate(tokens[slot - 1]):
            for c, token in enumerate(tokens[slot]):
                edge[slot, p, c] = edges.get((slot, int(previous), int(token)), 0.0)
    return BlockScores(tokens, log_q, edge)


def counting(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """Slot j's best candidate is last + 1 + j, modulo 15 but never EOS."""
    first = prefix[-1]
    return scores_of([{1 + (first + j) % 15: 0.9, EOS: 0.01} for j in range(num_slots)])


class ScriptedLM:
    """Answers script(prefix, num_slots) and holds prefixes as a cache would: slot by slot."""

    def __init__(self, script: Script, slots: int = 4, max_block: int = 9) -> None:
        self.script = script
        self.held: dict[int, tuple[int, ...]] = {}
        self.passes: list[list[BlockRequest]] = []
        self.capabilities = Capabilities(
            "scripted", 16, 64, EOS, max_block, "exact", cache_slots=slots, cache_tokens=64
        )

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        self.passes.append(list(requests))
        assert len({r.slot for r in requests}) == len(requests)
        answers = []
        for r in requests:
            held = self.held.get(r.slot, ())
            assert len(held) >= r.start and r.tokens
            self.held[r.slot] = held[: r.start] + tuple(r.tokens)
            answers.append(
                self.script(self.held[r.slot], r.num_slots)
                if r.num_slots
                else BlockScores(np.zeros((0, 1), dtype=np.int64), np.zeros((0, 1)))
            )
        return answers


def engine_of(model: ScriptedLM, max_sessions: int = 8, prefill_rows: int = 16) -> DrafterEngine:
    """An engine over a scripted model whose sessions propose argmax."""
    return DrafterEngine(model, lambda _: Argmax(EOS), INFO, max_sessions, prefill_rows)


def opening(session: str, prefix: tuple[int, ...], max_len: int = 40) -> DraftOpen:
    """A DraftOpen at temperature 0."""
    return DraftOpen(session, prefix, SamplingParams(), Proposal.ARGMAX, max_len)


def asking(session: str, prefix: tuple[int, ...], keep: int, count: int) -> Propose:
    """A Propose that keeps `keep` tokens of what was named before and names prefix."""
    base = Base(session, 0, len(prefix), hash_prefix(prefix))
    return Propose(base, keep, prefix[keep:], count)
