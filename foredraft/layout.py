"""Order space: which tokens of a text are given, and in which order the others are generated. Pure.

A session's prefix is the prompt by position, then what was generated, in the order in which it was:
by position, too ("Reviving Any-Subset Autoregressive Models", Eq. 4). So bases, hashes, rules,
noise and lengths count in orders; only models and the ingress know positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from foredraft.errors import InvalidRequest


@dataclass(frozen=True)
class Layout:
    """A text of `length` tokens of which those at the positions `given`, ascending, are the prompt.

    Raise InvalidRequest naming the field unless at least one token is given and one is not.
    """

    length: int
    given: tuple[int, ...]

    def __post_init__(self) -> None:
        ascending = all(left < right for left, right in pairwise(self.given))
        if not self.given or not ascending or self.given[0] < 0 or self.given[-1] >= self.length:
            raise InvalidRequest(
                f"layout.given must name positions from 0 to {self.length - 1} in ascending order",
                param="layout.given",
            )
        if self.length == len(self.given):
            raise InvalidRequest(
                f"layout.length must be above the {len(self.given)} tokens given",
                param="layout.length",
            )

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """sigma: the position of each order index, the prompt's first (Eq. 4)."""
        prompt = frozenset(self.given)
        return (*self.given, *(at for at in range(self.length) if at not in prompt))


def with_hole(before: int, hole: int, after: int) -> Layout:
    """Return the layout of a text with `hole` tokens to fill between the prompt's two parts."""
    return with_holes([(before, True), (hole, False), (after, True)])


def with_holes(parts: Iterable[tuple[int, bool]]) -> Layout:
    """Return the layout of a text of parts: how many tokens each has, and whether they are given.

    Raise InvalidRequest unless a token is given and one is not.
    """
    given: list[int] = []
    length = 0
    for tokens, known in parts:
        given += range(length, length + tokens) if known else ()
        length += tokens
    return Layout(length, tuple(given))
