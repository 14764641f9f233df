"""A diffusion drafter that speaks another model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drafter_service.bridge.pair import Pair
from drafter_service.bridge.reading import Reading, common
from drafter_service.bridge.respelling import respelled
from drafter_service.core.lattice import BlockScores
from drafter_service.model.port import BlockRequest, DiffusionLM


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
            mask=None,
        )
        self._capacity = min(own.max_len, own.cache_tokens)
        self._readings = [Reading(pair.drafter) for _ in range(own.cache_slots)]
        self._held: list[list[int]] = [[] for _ in range(own.cache_slots)]

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's slots (see DiffusionLM.draft)."""
        asked = [self._request(r) for r in requests]
        return [respelled(scores, self._pair) for scores in self._model.draft(asked)]

    def _request(self, request: BlockRequest) -> BlockRequest:
        """Return a request in the drafter's tokens, without those that are cached."""
        slot, count = request.slot, request.num_slots
        text = self._readings[slot].read(self._pair.heard(request.tokens))
        # Texts are divided by the end token, so one without anything to read begins behind it.
        text = self._end(text or [self._pair.drafter_eos], self._capacity - count)
        if self._own.prefix_kv == "none":
            return BlockRequest(slot, 0, text, count)
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
