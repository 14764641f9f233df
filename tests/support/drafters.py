"""Diffusion models whose answers are written down, and shorthands for the records around them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from drafter_service.compose import Strategies
from drafter_service.config import DrafterConfig
from drafter_service.engine import DrafterEngine
from drafter_service.models.port import FILLED, BlockRequest, Capabilities
from drafter_service.proposals.denoising import Pass, Passes
from drafter_service.proposals.lattice import BlockScores
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftOpen, Propose, ProposeAhead
from foredraft.types import Base, DraftParams, ModelInfo, Proposal, SamplingParams
from tests.support.waiting import DEADLINE_S

EOS = 0
INFO = ModelInfo(16, 64, "hash", "scripted", "scripted")
Script = Callable[[tuple[int, ...], int], BlockScores]
T = TypeVar("T")


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


@st.composite
def blocks(draw: st.DrawFn, vocab: int = 8) -> BlockScores:
    """Scores of up to four slots, the end of the text among each one's candidates."""
    depth, width = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tokens = np.stack([rng.permutation(np.arange(1, vocab))[:width] for _ in range(depth)])
    log_q = np.log(rng.dirichlet(np.full(vocab, 0.5), depth) + 1e-6)
    ranked = -np.sort(-log_q[:, :width], axis=1)
    for slot in range(depth):
        tokens[slot, rng.integers(width)] = EOS
    return BlockScores(tokens, ranked, rng.normal(0, 2, (depth, width, width)))


def counting(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """Slot j's best candidate is last + 1 + j, modulo 15 but never EOS."""
    first = prefix[-1]
    return scores_of([{1 + (first + j) % 15: 0.9, EOS: 0.01} for j in range(num_slots)])


def settled(scores: BlockScores, filled: Sequence[int]) -> BlockScores:
    """Scores with the filled slots' candidates given way to their tokens, as the port says."""
    tokens, log_q = scores.tokens.copy(), scores.log_q.copy()
    for slot, token in enumerate(filled):
        if token >= 0:
            others = [t for t in tokens[slot].tolist() if t != token]
            tokens[slot] = [token, *others][: len(tokens[slot])]
            log_q[slot] = FILLED
            log_q[slot, 0] = 0.0
    return replace(scores, tokens=tokens, log_q=log_q)


def driven(passes: Passes[T], answer: Callable[[Pass], BlockScores]) -> tuple[T, list[Pass]]:
    """What passes return when answer(pass) answers each, and what they asked for."""
    asked: list[Pass] = []
    scores = None
    while True:
        try:
            request = next(passes) if scores is None else passes.send(scores)
        except StopIteration as end:
            return end.value, asked
        asked.append(replace(request, text=tuple(request.text)))
        scores = answer(asked[-1])


class ScriptedLM:
    """Answers script(prefix, num_slots) and holds prefixes as a cache would: slot by slot."""

    def __init__(
        self,
        script: Script,
        slots: int = 4,
        max_mask_slots: int = 9,
        partial_blocks: bool = True,
        branches: int = 0,
    ) -> None:
        self.script = script
        self.held: dict[int, tuple[int, ...]] = {}
        self.passes: list[list[BlockRequest]] = []
        self.capabilities = Capabilities(
            "scripted", 16, 64, EOS, max_mask_slots, "exact", slots, 64, partial_blocks
        )
        self.capabilities = replace(self.capabilities, branch_slots=branches)

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        self.passes.append(list(requests))
        assert len({r.slot for r in requests}) == len(requests)
        answers = []
        for r in requests:
            held = self.held.get(r.slot if r.prefix_slot is None else r.prefix_slot, ())
            assert len(held) >= r.start and r.tokens
            self.held[r.slot] = held[: r.start] + tuple(r.tokens)
            answers.append(
                settled(self.script(self.held[r.slot], r.num_slots), r.filled)
                if r.num_slots
                else BlockScores(np.zeros((0, 1), dtype=np.int64), np.zeros((0, 1)))
            )
        return answers


class Gated(ScriptedLM):
    """Waits for `gate` in every pass and says when it is in one."""

    def __init__(self) -> None:
        super().__init__(counting)
        self.gate, self.inside = threading.Event(), threading.Event()

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        self.inside.set()
        assert self.gate.wait(DEADLINE_S)
        return super().draft(requests)


def strategies_of(model: ScriptedLM, **settings: Any) -> Strategies:
    """The strategies of a drafter with these settings."""
    return Strategies(DrafterConfig(model=Path("unused"), **settings), model.capabilities)


def engine_of(
    model: ScriptedLM, max_sessions: int = 8, prefill_rows: int = 16, **settings: Any
) -> DrafterEngine:
    """An engine over a scripted model."""
    make = strategies_of(model, **settings).make
    return DrafterEngine(model, make, INFO, max_sessions, prefill_rows)


def opening(
    session: str,
    prefix: tuple[int, ...],
    max_len: int = 40,
    proposal: Proposal = Proposal.ARGMAX,
    sampling: SamplingParams | None = None,
    **params: Any,
) -> DraftOpen:
    """A DraftOpen, by default at temperature 0; params are DraftParams'."""
    sampling = sampling or SamplingParams()
    return DraftOpen(session, prefix, sampling, proposal, max_len, DraftParams(**params))


def asking_ahead(
    session: str, prefix: tuple[int, ...], outcomes: Sequence[tuple[int, ...]], count: int
) -> ProposeAhead:
    """A ProposeAhead that names the prefix anew."""
    base = Base(session, 0, len(prefix), hash_prefix(prefix))
    return ProposeAhead(base, 0, prefix, count, tuple(outcomes))


def asking(session: str, prefix: tuple[int, ...], keep: int, count: int) -> Propose:
    """A Propose that keeps `keep` tokens of what was named before and names prefix."""
    base = Base(session, 0, len(prefix), hash_prefix(prefix))
    return Propose(base, keep, prefix[keep:], count)
