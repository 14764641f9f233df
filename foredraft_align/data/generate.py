"""The target's own texts, written by the verifier's forward pass in continuous batches.

Rows of all texts share a pass; a text that ended gives its place to the next one. Sampling is the
target's own at the text's temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from foredraft_align.data.conversation import Conversation
from foredraft_align.data.texts import TOP, Texts
from verifier_service.models.fusion import FeatureFusion
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment


@dataclass(frozen=True, slots=True)
class RawStates:
    """In place of a fusion: the hidden states behind layers, as they are."""

    layer_ids: tuple[int, ...]

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def of_bits(self, states: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
        """Return the states."""
        return states


class Writer:
    """Has a target write texts, `batch` of them at a time; states are those behind layer_ids."""

    def __init__(self, target: PagedModel, batch: int, layer_ids: tuple[int, ...]) -> None:
        self._target, self._batch, self._layers = target, batch, layer_ids

    def write(
        self, conversations: Sequence[Conversation], seed: int
    ) -> tuple[Texts, npt.NDArray[np.uint16]]:
        """Return the conversations, written to their ends, in their order, and their states."""
        generator = torch.Generator().manual_seed(seed)
        waiting = iter(range(len(conversations)))
        open_rows: dict[int, _Row] = {}
        written: list[_Row | None] = [None] * len(conversations)
        while True:
            for index in _next(waiting, self._batch - len(open_rows)):
                size = -(-conversations[index].max_tokens // self._target.block_tokens)
                open_rows[index] = _Row(conversations[index], self._target.pool.take(size + 1))
            if not open_rows:
                return _texts([row for row in written if row is not None])
            self._step(list(open_rows.values()), generator)
            for index, row in list(open_rows.items()):
                if row.conversation.ended:
                    self._target.pool.give(row.table)
                    written[index] = open_rows.pop(index)

    def _step(self, rows: list[_Row], generator: torch.Generator) -> None:
        """Read what is unread of every text, and choose its next token."""
        unread = [row.conversation.unread for row in rows]
        segments = [
            Segment(row.table, row.conversation.done, tokens, 1)
            for row, tokens in zip(rows, unread, strict=True)
        ]
        logits, states = self._forward(segments)
        begin = 0
        temperature = torch.tensor([row.conversation.sampling_temperature for row in rows])
        ids, log_probs, chosen = choose(torch.from_numpy(logits), temperature, generator)
        for i, (row, tokens) in enumerate(zip(rows, unread, strict=True)):
            row.states.append(states[begin : begin + len(tokens)])
            begin += len(tokens)
            row.add(int(chosen[i]), ids[i], log_probs[i])

    def _forward(self, segments: list[Segment]) -> tuple[Any, Any]:
        """Return logits [rows, vocabulary] and bits of states [tokens, layers x hidden]."""
        flat = self._target.flat(segments)
        if not self._layers:
            return self._target.passes(flat), np.empty((len(flat.tokens), 0), np.uint16)
        passes: Any = self._target.passes
        fusion: FeatureFusion | RawStates = RawStates(self._layers)
        return passes.fused(flat, range(len(flat.tokens)), fusion)


def choose(
    logits: torch.Tensor, temperature: torch.Tensor, generator: torch.Generator
) -> tuple[Any, Any, torch.Tensor]:
    """Return each row's TOP candidates, their log-probabilities at temperature 1, and its token.

    logits are fp32 [rows, vocabulary], temperature [rows], 0 for the best token.
    """
    log_probs = logits.log_softmax(-1)
    values, ids = log_probs.topk(TOP)
    chosen = ids[:, 0].clone()
    sampled = (temperature > 0).nonzero().flatten()
    if len(sampled):
        weights = (log_probs[sampled] / temperature[sampled, None]).softmax(-1)
        chosen[sampled] = torch.multinomial(weights, 1, generator=generator)[:, 0]
    return ids.int().numpy(), values.half().numpy(), chosen


class _Row:
    """One text with its KV blocks and what was seen of its tokens."""

    def __init__(self, conversation: Conversation, table: Sequence[int]) -> None:
        self.conversation, self.table = conversation, list(table)
        self.states: list[npt.NDArray[np.uint16]] = []
        self._tops: dict[int, tuple[Any, Any]] = {}

    def add(self, token: int, ids: Any, log_probs: Any) -> None:
        """Take the next token, with the candidates for its place."""
        if self.conversation.answer_from is not None:
            self._tops[len(self.conversation.tokens)] = (ids, log_probs)
        self.conversation.add(token)

    def finished(self) -> tuple[Any, Any, Any]:
        """Return top ids, top log-probabilities and states, one row a token."""
        count = len(self.conversation.tokens)
        ids = np.zeros((count, TOP), np.int32)
        log_probs = np.zeros((count, TOP), np.float16)
        for place, (each_ids, each_log_probs) in self._tops.items():
            ids[place], log_probs[place] = each_ids, each_log_probs
        states = np.concatenate(self.states)
        # The last token was chosen and never read.
        filler = np.zeros((count - len(states), states.shape[1]), np.uint16)
        return ids, log_probs, np.concatenate((states, filler))


def _next(waiting: Iterator[int], count: int) -> Iterator[int]:
    return (index for _, index in zip(range(count), waiting, strict=False))


def _texts(rows: list[_Row]) -> tuple[Texts, npt.NDArray[np.uint16]]:
    conversations = [row.conversation for row in rows]
    tokens = [np.array(each.tokens, np.int32) for each in conversations]
    ids, log_probs, states = zip(*(row.finished() for row in rows), strict=True)
    texts = Texts(
        np.concatenate(tokens),
        np.cumsum([0, *(len(each) for each in tokens)]).astype(np.int64),
        np.array([each.answer_from for each in conversations], np.int64),
        np.array([each.temperature for each in conversations], np.float32),
        np.concatenate(ids),
        np.concatenate(log_probs),
    )
    return texts, np.concatenate(states)
