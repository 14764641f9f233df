"""What kinds of drafters can be taught: what each reads, scores, and begins as."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from drafter_service.models.embedded.block_causal import read_config
from foredraft_align.drafter.block_causal import BlockCausalStudent
from foredraft_align.drafter.sdar_start import decoder_sizes, sdar_from_drafter, sdar_from_target
from foredraft_align.drafter.start import drafter_config, layers_to_read
from foredraft_align.drafter.student import Student


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a drafter, and the drafter that it goes on from, if any."""

    target: Path
    layers: int
    block: int
    shortlist: int
    start: Path | None
    seed: int


class Kind(Protocol):
    """One kind of drafter; errors are those of the functions in drafter/."""

    @property
    def reads(self) -> str:
        """Its line in a card."""

    def check(self, shape: Shape) -> None:
        """Raise WeightsError where no such drafter can be made of the target."""

    def layer_ids(self, shape: Shape) -> tuple[int, ...]:
        """Return the target's layers whose hidden states are stored with the texts."""

    def num_listed(self, shape: Shape) -> int:
        """Return how many tokens the head scores, 0 for all."""

    def make(self, shape: Shape, token_ids: tuple[int, ...]) -> Callable[[], Student]:
        """Return what makes the drafter in each worker; token_ids are those that are scored."""


@dataclass(frozen=True, slots=True)
class OwnFormat:
    """Our block-causal format: a shortlist, edges, the target's embedding and head by reference."""

    features: bool

    @property
    def reads(self) -> str:
        """Its line in a card."""
        read = "the target's hidden states" if self.features else "tokens alone"
        return f"It reads {read}; embedding and head are the target's and not in this\nfolder."

    def check(self, shape: Shape) -> None:
        """Raise WeightsError for heads that do not divide the width."""
        drafter_config(shape.target, shape.layers, shape.block, 0, ())

    def layer_ids(self, shape: Shape) -> tuple[int, ...]:
        """Return the layers that are fused to features, those of the start if there is one."""
        if shape.start is not None:
            return read_config(shape.start).target_layer_ids
        return layers_to_read(_num_layers(shape.target)) if self.features else ()

    def num_listed(self, shape: Shape) -> int:
        """Return the shortlist's length, a multiple of 64."""
        return shape.shortlist // 64 * 64

    def make(self, shape: Shape, token_ids: tuple[int, ...]) -> Callable[[], Student]:
        """Return what makes the drafter from the target, or from the start."""
        if shape.start is not None:
            return partial(BlockCausalStudent.from_drafter, shape.start, shape.target, shape.layers)
        config = drafter_config(
            shape.target, shape.layers, shape.block, len(token_ids), self.layer_ids(shape)
        )
        return partial(BlockCausalStudent.from_target, config, shape.target, token_ids, shape.seed)


@dataclass(frozen=True, slots=True)
class Sdar:
    """SDAR's public format: all tokens are scored, and all weights are in the folder."""

    reads: str = "It has SDAR's format and reads tokens alone; embedding and head are the target's."

    def check(self, shape: Shape) -> None:
        """Raise WeightsError for rotary positions that the format lacks."""
        decoder_sizes(shape.target)

    def layer_ids(self, shape: Shape) -> tuple[int, ...]:
        """Return none."""
        return ()

    def num_listed(self, shape: Shape) -> int:
        """Return 0: the format has no shortlist."""
        return 0

    def make(self, shape: Shape, token_ids: tuple[int, ...]) -> Callable[[], Student]:
        """Return what makes the drafter from the target, or from the start."""
        if shape.start is not None:
            return partial(sdar_from_drafter, shape.start, shape.target, shape.layers)
        return partial(sdar_from_target, shape.target, shape.layers, shape.block, shape.seed)


KINDS: dict[str, Kind] = {
    "tokens": OwnFormat(features=False),
    "features": OwnFormat(features=True),
    "sdar": Sdar(),
}


def _num_layers(target: Path) -> int:
    return int(json.loads((target / "config.json").read_text())["num_hidden_layers"])
