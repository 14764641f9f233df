"""A drafter without its edge head: each slot's own distribution alone, as the papers draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drafter_service.models.port import BlockRequest, Capabilities, DiffusionLM
from drafter_service.proposals.lattice import BlockScores


class MarginalDrafter:
    """A DiffusionLM around another, whose slots do not depend on each other (DEER Sec. 3.2).

    What is drafted at a slot then follows the prefix alone: q(y_i | x), not q(y_i | x, y_<i).
    """

    def __init__(self, model: DiffusionLM) -> None:
        self._model = model

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""
        return self._model.capabilities

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the model's candidates, without edges between them."""
        return [replace(scores, edge=None) for scores in self._model.draft(requests)]
