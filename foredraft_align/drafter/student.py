"""What a training asks of the drafter that it trains, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from foredraft_align.loop.batches import Batch


class Wanted(NamedTuple):
    """What slots should predict; n is b x c x s."""

    rows: Tensor
    """int64 [n, m], rows of the head"""
    shares: Tensor
    """fp32 [n, m], their probabilities"""
    weight: Tensor
    """fp32 [n], how much each slot counts"""


class Student(Protocol):
    """A drafter in training; `scored` tokens are its candidates."""

    @property
    def row_of(self) -> Tensor:
        """int64 [vocab], each token's row of the head, `scored` or more for what is not scored."""

    @property
    def num_scored(self) -> int:
        """How many tokens the head scores."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters; matrices of `layers.` and `fc.` go to Muon."""

    def hidden_of_slots(self, batch: Batch, filled: Tensor | None = None) -> Tensor:
        """Return the normalised states [b x c x s, hidden] of a batch's slots.

        Slots that are filled, bool [b, c, s], show the text's token instead of a mask.
        """

    def loss(self, hidden: Tensor, previous: Tensor, wanted: Wanted, base_share: float) -> Tensor:
        """Return the weighted loss of slots with states [n, hidden] behind the tokens previous [n].

        base_share is the share of a slot by itself where the drafter also scores it after the token
        before it.
        """

    def best(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Return each slot's best token [n] after the one before it."""

    def save(self, folder: Path) -> None:
        """Write the drafter's folder, as the drafter service loads it."""
