"""One call of the model: committed blocks are read, states of the blocks after them evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from denoiser_service.block_kv import BlockKv
from denoiser_service.core.draws import Logits
from foredraft.decoding.block_state import MASKED, State, is_full, opened
from verifier_service.models.port import Segment, TargetModel


class Part(NamedTuple):
    """A session's part of a call: tokens[cached:end] get KV, and states of the block at end logits.

    Both cached and end are ends of blocks; tokens[:cached] have KV.
    """

    key: int
    tokens: Sequence[int]
    cached: int
    end: int
    states: Sequence[State]


class Evaluator:
    """Makes calls of a block-diffusion model with a block table for each session.

    The rows of a block see each other and the blocks before. A state's bits depend on nothing else:
    not on the states beside it, nor on other sessions, where the model is row-invariant.
    """

    def __init__(self, model: TargetModel, tables: BlockKv, mask_token: int) -> None:
        self._model, self._tables = model, tables
        self._length, self._mask = model.info.block_length, mask_token

    def __call__(self, parts: Sequence[Part]) -> tuple[list[list[Logits]], int]:
        """Return each state's logits [L, vocabulary], part by part, and the call's rows; for a full
        state those of the next block's first one.

        The mask token's are -inf.
        """
        segments = [segment for part in parts for segment in self._segments(part)]
        rows = self._model.forward(segments)
        rows[:, self._mask] = -np.inf
        states = iter(rows.reshape(-1, self._length, rows.shape[1]))
        logits = [[next(states) for _ in part.states] for part in parts]
        return logits, sum(len(segment.tokens) for segment in segments)

    def _segments(self, part: Part) -> list[Segment]:
        """Return blocks to read, then each state, in a table of its own; a full one is read, too,
        and the next block's first state evaluated.
        """
        end, length = part.end, self._length
        table = self._tables.table(part.key, end + length * bool(part.states))
        read = [
            Segment(table, at, part.tokens[at : at + length], 0, (), length)
            for at in range(part.cached, end, length)
        ]
        if not part.states:
            return read
        tables = [table, *self._tables.drafts(part.key, end, len(part.states) - 1)]
        for own, state in zip(tables, part.states, strict=True):
            at = end
            if is_full(state):
                read.append(Segment(own, at, state, 0, (), length))
                state, at = opened((), length), at + length
            tokens = [self._mask if token == MASKED else token for token in state]
            read.append(Segment(own, at, tokens, length, (), length))
        return read
