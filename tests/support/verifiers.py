"""Target models in a few lines, and what is asked of an engine over them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from foredraft.decoding.prefix import hash_prefix
from foredraft.decoding.tree import branch
from foredraft.errors import ForedraftError
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Acceptance, Base, Candidates, ModelInfo, SamplingParams
from verifier_service.kv.block_pool import BlockPool
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import Segment
from verifier_service.targets.engine import VerifierEngine

VOCAB = 100


BLOCK = 16


class CountingModel:
    """It counts: after token t comes t + 1, modulo the vocabulary. A row of KV is its token.

    Checks what the port promises to a model: KV before a segment was written by earlier ones, and
    blocks are somebody's. Texts that begin with a poisoned token have no logits.
    """

    block_tokens = BLOCK

    def __init__(self, max_len: int = 200, vocab: int = VOCAB) -> None:
        self.info = ModelInfo(vocab, max_len, "", "exact", "scripted")
        self.pool = BlockPool(1024 // BLOCK)
        self.rows: dict[tuple[int, int], int] = {}
        self.batches: list[list[Segment]] = []
        self.poisoned: set[int] = set()

    def text(self, blocks: Sequence[int], count: int) -> list[int]:
        """The first tokens that blocks hold."""
        return [self.rows[blocks[row // BLOCK], row % BLOCK] for row in range(count)]

    def forward(self, segments: Sequence[Segment]) -> np.ndarray:
        self.batches.append(list(segments))
        rows = []
        for blocks, start, tokens, wanted, parents, *_ in segments:
            for at, token in enumerate(tokens, start):
                self.rows[blocks[at // BLOCK], at % BLOCK] = token
            text = self.text(blocks, start + len(tokens))
            root = len(text) - len(parents)
            for row in range(len(text) - wanted, len(text)):
                seen = text[: min(row + 1, root)]
                if row >= root:
                    seen += [text[root + node] for node in branch(parents, row - root)]
                rows.append(self.logits(seen) * (np.nan if text[0] in self.poisoned else 1))
        return np.array(rows, dtype=np.float32).reshape(-1, self.info.vocab_size)

    def logits(self, text: Sequence[int]) -> np.ndarray:
        row = np.zeros(self.info.vocab_size)
        row[(text[-1] + 1) % len(row)] = 9.0
        return row

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        text = self.text(blocks, start + max(rows, default=-1) + 1)
        for at, row in enumerate(rows, start):
            self.rows[blocks[at // BLOCK], at % BLOCK] = text[start + row]


class RandomModel(CountingModel):
    """Its logits are random, and another draw after every text."""

    def logits(self, text: Sequence[int]) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(bytes(text))).normal(size=self.info.vocab_size)


def kv_of(model: CountingModel, max_sessions: int = 8, overcommit: float = 1.0) -> KvBlocks:
    """Return block tables over a model's pool."""
    return KvBlocks(
        model.pool, block_tokens=BLOCK, max_sessions=max_sessions, overcommit=overcommit
    )


def make_engine(
    model: CountingModel | None = None,
    *,
    kv_tokens: int = 1024,
    max_sessions: int = 8,
    overcommit: float = 1.0,
    **kw: Any,
) -> VerifierEngine:
    """Return an engine over a counting model."""
    model = model or CountingModel()
    model.pool = BlockPool(kv_tokens // BLOCK)
    return VerifierEngine(model, kv_of(model, max_sessions, overcommit), **kw)


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


def finish(engine: VerifierEngine) -> dict[int, Verdict | ForedraftError]:
    """Step until nothing is pending; return each handle's last result."""
    results: dict[int, Verdict | ForedraftError] = {}
    while engine.has_work:
        results.update(engine.step())
    return results


def verdict_of(engine: VerifierEngine, handle: int, asked: Round) -> Verdict:
    """Return the verdict of a round, with nothing left pending."""
    engine.submit(handle, asked)
    verdict = finish(engine)[handle]
    assert isinstance(verdict, Verdict), verdict
    return verdict


def decoded(
    engine: VerifierEngine,
    handle: int,
    prompt: Sequence[int],
    most: int,
    stops: Sequence[int] = (),
) -> tuple[int, ...]:
    """Decode plainly, at most so many tokens: a plain round ends early where passes take long."""
    found: tuple[int, ...] = ()
    while len(found) < most and not {*found[-1:]} & {*stops}:
        asked = round_after([*prompt, *found], steps=min(MAX_PLAIN_STEPS, most - len(found)))
        found += verdict_of(engine, handle, asked).next_tokens
    return found
