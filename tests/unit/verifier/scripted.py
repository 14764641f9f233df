"""A target model in a few lines: it counts. After token t comes t + 1, modulo the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.prefix import hash_prefix
from foredraft.types import Base, ModelInfo, Round, SamplingParams, VerifyOpen
from verifier_service.core.kv_blocks import KvBlocks
from verifier_service.engine import VerifierEngine
from verifier_service.model.port import Segment

VOCAB = 100


class CountingModel:
    """Checks what the port promises to a model: KV before a segment was written by earlier ones."""

    def __init__(self, max_len: int = 200) -> None:
        self.info = ModelInfo(VOCAB, max_len, "", "exact", "counting")
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
        for slot, start, tokens, wanted in segments:
            text = self.slots[slot]
            assert start <= len(text), "a segment starts behind what has KV"
            self.slots[slot] = [*text[:start], *tokens]
            for token in list(tokens)[len(tokens) - wanted :]:
                row = np.zeros(VOCAB, dtype=np.float32)
                row[(token + 1) % VOCAB] = np.nan if slot in self.poisoned else 9.0
                rows.append(row)
        return np.array(rows, dtype=np.float32).reshape(-1, VOCAB)


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
) -> VerifyOpen:
    """Return an open message."""
    return VerifyOpen(
        session_id, tuple(prefix), sampling or SamplingParams(), new, draft, tuple(stop)
    )


def round_after(
    prefix: Sequence[int],
    draft: Sequence[int] = (),
    *,
    number: int = 0,
    steps: int = 1,
    session_id: str = "s",
) -> Round:
    """Return a round on a prefix."""
    base = Base(session_id, number, len(prefix), hash_prefix(prefix))
    return Round(base, tuple(draft), 0 if draft else steps)
