"""How a drafting method asks for the model's passes: as a generator that yields them one by one.

So one loop (engine.py) can run many sessions' methods side by side, each in as many passes as it
needs, and let their next passes share one forward.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from drafter_service.proposals.lattice import BlockScores

MASK = -1
"""In Pass.filled: a slot that holds no token yet."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pass:
    """Asks for the candidates of num_slots slots, at least one, behind text.

    text is the session's context and then what the method drafted so far; each pass's text begins
    with the one before. filled[j] is the token that slot j already holds, or MASK; empty means that
    all slots are masks.
    """

    text: Sequence[int]
    num_slots: int
    filled: tuple[int, ...] = ()


Passes = Generator[Pass, BlockScores, T]
"""Yields the passes it needs, is sent each one's scores, and returns what they come to."""
