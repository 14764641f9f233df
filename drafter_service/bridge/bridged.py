"""A diffusion drafter that drafts in another model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from drafter_service.bridge.pair import Pair
from drafter_service.bridge.reading import Reading
from drafter_service.bridge.respelling import respelled
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.prefix_chain import common

# A text's last piece is looked for among so many of its last tokens.
_PIECE = 8


class BridgedLM:
    """A drafter behind the DiffusionLM port in the tokens of its target.

    Takes every text whole, and knows by itself what of it, in the drafter's tokens, a cache slot
    holds. prefill_rows is the most of these that are fed in one pass.
    """

    def __init__(self, model: DiffusionLM, pair: Pair, prefill_rows: int) -> None:
        self._model, self._pair, self._prefill_rows = model, pair, prefill_rows
        own = self._own = model.capabilities
        self.capabilities = replace(
            own,
            vocab_size=len(pair.target.spelling),
            eos=pair.target_eos,
            prefix_kv="none",
            # A slot of the block that is asked for is no slot of the drafter's.
            partial_blocks=False,
            # The target's features are of its own tokens.
            features_hash="",
            features_width=0,
            mask=None,
        )
        self._capacity = min(own.max_len, own.cache_tokens)
        self._readings = [Reading(pair.drafter) for _ in range(own.cache_slots)]
        self._held: list[list[int]] = [[] for _ in range(own.cache_slots)]

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's slots (see DiffusionLM.draft).

        Where a text ends as the beginning of a token, the first slot is for the whole of it.
        """
        texts = [self._text(r) for r in requests]
        counts = self._unfinished(requests, texts)
        asked, begun = [], []
        for r, text, count in zip(requests, texts, counts, strict=True):
            known = len(text) - count
            asked.append(self._request(r, text[:known], r.num_slots))
            begun.append(self._spelled(text[known:]))
        scores = self._model.draft(asked)
        return [respelled(s, self._pair, b) for s, b in zip(scores, begun, strict=True)]

    def _text(self, request: BlockRequest) -> list[int]:
        """Return a request's text in the drafter's tokens, as much as the drafter can hold."""
        text = self._readings[request.slot].read(self._pair.bytes_of(request.tokens))
        # Texts are divided by the end token, so one without anything to read begins behind it.
        return self._end(text or [self._pair.drafter_eos], self._capacity - request.num_slots)

    def _unfinished(
        self, requests: Sequence[BlockRequest], texts: Sequence[list[int]]
    ) -> list[int]:
        """Return how many of each text's last tokens are likelier the beginning of another token.

        The drafter never saw a text that goes on behind half of one of its tokens, and what it
        drafts there is never kept. So it is asked, in a pass for all, what follows what is before
        the last piece: more of what goes on from there than of what is there makes it unfinished.
        """
        counts = [0] * len(texts)
        asked, places = [], []
        for place, (r, text) in enumerate(zip(requests, texts, strict=True)):
            count = self._pair.drafter.last_piece(text[-_PIECE:])
            if count < len(text):
                counts[place] = count
                asked.append(self._request(r, text[: len(text) - count], 1))
                places.append(place)
        for place, scores in zip(places, self._model.draft(asked) if asked else (), strict=True):
            last = texts[place][-counts[place] :]
            longer = self._pair.goes_on(scores.tokens[0].tolist(), self._spelled(last))
            mass = np.exp(scores.log_q[0] + (0.0 if scores.edge is None else scores.edge[0, 0]))
            if mass[longer].sum() <= mass[scores.tokens[0] == last[0]].sum():
                counts[place] = 0
        return counts

    def _spelled(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._pair.drafter.spelling[token] for token in tokens)

    def _request(self, asked: BlockRequest, text: list[int], count: int) -> BlockRequest:
        """Return a request for count slots behind text, without what of it is cached."""
        slot = asked.slot
        if self._own.prefix_kv != "exact":
            return BlockRequest(slot, 0, text, count, tentative=asked.tentative, fresh=asked.fresh)
        start = min(common(self._held[slot], text), len(text) - 1)
        self._held[slot] = text
        while len(text) - start > self._prefill_rows:
            chunk = text[start : start + self._prefill_rows]
            self._model.draft([BlockRequest(slot, start, chunk, 0)])
            start += len(chunk)
        return BlockRequest(slot, start, text[start:], count)

    def _end(self, text: list[int], room: int) -> list[int]:
        """Return what of a text the drafter can hold: its end, cut at the same place for long."""
        step = max(1, min(self._capacity // 2, room))
        excess = max(0, len(text) - room)
        return text[-(-excess // step) * step :]
