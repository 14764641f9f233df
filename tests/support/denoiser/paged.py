"""A table of logits as a paged target model, and what is asked of a denoiser engine over it."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np

from denoiser_service.core.decode import GraphDrafting
from denoiser_service.core.graph import DraftGraph
from denoiser_service.engine import DenoiserEngine
from foredraft.decoding.block_state import MASKED, hash_state, opened
from foredraft.decoding.prefix import hash_prefix
from foredraft.denoising import Advance, Advanced, DenoiseOpen, Static
from foredraft.types import Base, ModelInfo, SamplingParams
from tests.support.denoiser.tabular import SLOTS, VOCAB, Tabular
from verifier_service.kv.block_pool import BlockPool
from verifier_service.kv.block_table import KvBlocks

MASK = VOCAB
BLOCK = 2 * SLOTS
ONE = Static(1)
NOTHING = partial(GraphDrafting, DraftGraph(()))


class PagedTable:
    """A TargetModel over a table. A row of KV is its token.

    Checks what the port promises to a model: a segment is a block whose rows see each other, no
    row is written twice in a pass, KV before a segment was written, and blocks are somebody's. The
    mask token has the largest logit of all. Texts that begin with a poisoned token have none.
    """

    block_tokens = BLOCK

    def __init__(self, seed=0, max_len=60, blocks=100):
        self.info = ModelInfo(
            VOCAB + 1, max_len, "", "exact", "table", mask_token_id=MASK, block_length=SLOTS
        )
        self.table = Tabular(seed)
        self.pool = BlockPool(blocks)
        self.rows = {}
        self.passes = []
        self.poisoned = set()

    def forward(self, segments):
        self.passes.append(list(segments))
        written, logits = set(), []
        for blocks, start, tokens, wanted, parents, mutual, positions in segments:
            assert mutual == len(tokens) == SLOTS and start % SLOTS == 0
            assert not parents and not positions
            for at, token in enumerate(tokens, start):
                place = blocks[at // BLOCK], at % BLOCK
                assert place not in written and self.pool._users[place[0]] > 0
                written.add(place)
                self.rows[place] = token
            if not wanted:
                assert MASK not in tokens
                continue
            assert wanted == SLOTS
            prefix = [self.rows[blocks[at // BLOCK], at % BLOCK] for at in range(start)]
            assert MASK not in prefix
            state = [MASKED if token == MASK else token for token in tokens]
            found = np.full((SLOTS, VOCAB + 1), 100.0, np.float32)
            found[:, :VOCAB] = self.table.logits(prefix, state)
            text = [*prefix, *state]
            logits.append(found * (np.nan if text[0] in self.poisoned else 1))
        return np.array(logits, np.float32).reshape(-1, VOCAB + 1)

    def keep(self, blocks, start, rows):
        for at, row in enumerate(rows, start):
            found = self.rows[blocks[(start + row) // BLOCK], (start + row) % BLOCK]
            self.rows[blocks[at // BLOCK], at % BLOCK] = found


def make_engine(model=None, drafting=NOTHING, max_sessions=8, **settings):
    """An engine over a table."""
    model = model or PagedTable()
    kv = KvBlocks(model.pool, block_tokens=model.block_tokens, max_sessions=max_sessions)
    return DenoiserEngine(model, kv, drafting, **settings)


def opening(
    prefix=(1, 0, 2, 1),
    new=7,
    *,
    session_id="s",
    temperature=0.0,
    seed=0,
    unmasking=ONE,
    drafts=0,
    stops=(),
):
    """An open message."""
    sampling = SamplingParams(temperature, seed=seed)
    return DenoiseOpen(session_id, tuple(prefix), sampling, new, unmasking, drafts, tuple(stops))


def advance(tokens, state=None, calls=1, *, number=0, session_id="s", slots=SLOTS):
    """An advance from a state after whole blocks of tokens, by default of what tokens open."""
    start = len(tokens) - len(tokens) % slots
    if state is None:
        state = opened(tokens[start:], slots)
    named = hash_state(hash_prefix(tokens[:start]), start // slots, tuple(state))
    return Advance(Base(session_id, number, start, named), calls)


def finish(engine):
    """Step until nothing is pending; return each handle's last result."""
    results = {}
    while engine.has_work:
        results.update(engine.step())
    return results


def advanced(engine, handle, asked):
    """The answer to an advance, with nothing left pending."""
    engine.submit(handle, asked)
    found = finish(engine)[handle]
    assert isinstance(found, Advanced), found
    return found


class Reader:
    """One session of an engine as its caller follows it: the text, the state, the counts."""

    def __init__(self, engine, request, slots=SLOTS):
        self.engine, self.request, self.slots = engine, request, slots
        self.handle = engine.open(request)
        self.tokens, self.number = request.prefix, 0
        start = len(self.tokens) - len(self.tokens) % slots
        self.state = opened(self.tokens[start:], slots)
        self.steps = self.calls = 0

    @property
    def done(self):
        return not self.state

    def submit(self, calls=1):
        start = len(self.tokens) - len(self.tokens) % self.slots
        session = self.request.session_id
        self.asked = advance(
            self.tokens[:start], self.state, calls,
            number=self.number, session_id=session, slots=self.slots,
        )  # fmt: skip
        self.engine.submit(self.handle, self.asked)

    def hear(self, answer):
        assert isinstance(answer, Advanced), answer
        assert answer.base == self.asked.base and answer.calls <= self.asked.calls
        assert answer.accepted == answer.steps - answer.calls >= 0
        if answer.committed:
            start = len(self.tokens) - len(self.tokens) % self.slots
            self.tokens = (*self.tokens[:start], *answer.committed)
        self.state, self.number = answer.block, self.number + 1
        self.steps += answer.steps
        self.calls += answer.calls

    @property
    def text(self):
        """The new tokens that were asked for."""
        prompt = len(self.request.prefix)
        new = self.tokens[prompt : prompt + self.request.max_new_tokens]
        end = next((i for i, t in enumerate(new) if t in self.request.stop_token_ids), len(new))
        return new[: end + 1]


class InProcess:
    """A port to an engine in the process; `closed` counts the ends of its streams."""

    draining = False

    def __init__(self, delay_s=0.0):
        self.engine = make_engine(PagedTable())
        self.model = self.engine.info
        self.delay_s = delay_s
        self.closed = 0

    async def open(self, request):
        self.handle = self.engine.open(request)
        return self

    async def advance(self, request):
        await asyncio.sleep(self.delay_s)
        self.engine.submit(self.handle, request)
        return finish(self.engine)[self.handle]

    async def close(self):
        self.engine.close(self.handle)
        self.closed += 1
