"""Target models in a few lines, and what is asked of an engine over them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from foredraft.prefix import hash_prefix
from foredraft.tree import branch
from foredraft.types import (
    Acceptance,
    Base,
    Candidates,
    ModelInfo,
    Round,
    SamplingParams,
    VerifyOpen,
)
from verifier_service.core.kv_blocks import KvBlocks
from verifier_service.engine import VerifierEngine
from verifier_service.model.port import Segment

VOCAB = 100


class CountingModel:
    """It counts: after token t comes t + 1, modulo the vocabulary. A row of KV is its token.

    Checks what the port promises to a model: KV before a segment was written by earlier ones.
    """

    def __init__(self, max_len: int = 200, vocab: int = VOCAB) -> None:
        self.info = ModelInfo(vocab, max_len, "", "exact", "scripted")
        self.slots: dict[int, list[int]] = {}
        self.batches: list[list[Segment]] = []
        self.poisoned: set[int] = set()
        self._next = 0

    def alloc(self, capacity: int) -> int:
        self._next += 1
        self.slots[self._next] = []
        return self._next

    def free(self, slot: int) -> None:
        del self.slots[slot]

    def forward(self, segments: Sequence[Segment]) -> np.ndarray:
        self.batches.append(list(segments))
        rows = []
        for slot, start, tokens, wanted, parents in segments:
            text = self.slots[slot]
            assert start <= len(text), "a segment starts behind what has KV"
            text[start:] = tokens
            root = len(text) - len(parents)
            for row in range(len(text) - wanted, len(text)):
                seen = text[: min(row + 1, root)]
                if row >= root:
                    seen += [text[root + node] for node in branch(parents, row - root)]
                rows.append(self.logits(seen) * (np.nan if slot in self.poisoned else 1))
        return np.array(rows, dtype=np.float32).reshape(-1, self.info.vocab_size)

    def logits(self, text: Sequence[int]) -> np.ndarray:
        row = np.zeros(self.info.vocab_size)
        row[(text[-1] + 1) % len(row)] = 9.0
        return row

    def keep(self, slot: int, start: int, rows: Sequence[int]) -> None:
        self.slots[slot][start:] = [self.slots[slot][start + row] for row in rows]


class RandomModel(CountingModel):
    """Its logits are random, and another draw after every text."""

    def logits(self, text: Sequence[int]) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(bytes(text))).normal(size=self.info.vocab_size)


def make_engine(
    model: CountingModel | None = None, *, kv_tokens: int = 1024, max_sessions: int = 8, **kw: int
) -> VerifierEngine:
    """Return an engine over a counting model."""
    kv = KvBlocks(kv_tokens=kv_tokens, block_tokens=16, max_sessions=max_sessions)
    return VerifierEngine(model or CountingModel(), kv, **kw)


def opening(
    prefix: Sequence[int] = (1, 2, 3),
    *,
    session_id: str = "s",
    new: int = 50,
    draft: int = 8,
    stop: Sequence[int] = (),
    sampling: SamplingParams | None = None,
    acceptance: Acceptance = Acceptance.COUPLED,
) -> VerifyOpen:
    """Return an open message."""
    return VerifyOpen(
        session_id,
        tuple(prefix),
        sampling or SamplingParams(),
        new,
        draft,
        tuple(stop),
        acceptance,
    )


def round_after(
    prefix: Sequence[int],
    draft: Sequence[int] = (),
    parents: Sequence[int] = (),
    *,
    number: int = 0,
    steps: int = 1,
    session_id: str = "s",
    q: Sequence[Candidates] = (),
) -> Round:
    """Return a round on a prefix."""
    base = Base(session_id, number, len(prefix), hash_prefix(prefix))
    return Round(base, tuple(draft), 0 if draft else steps, tuple(parents), tuple(q))
