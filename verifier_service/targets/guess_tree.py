"""The tree of guesses of which most are expected to be accepted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from foredraft.decoding.tree import ROOT


class Guess(NamedTuple):
    """A token, how likely it is right where those before it are, and whether a row ahead alone has
    it.
    """

    chance: float
    token: int
    by_row: bool


class GuessTree(NamedTuple):
    """A draft tree of guesses, and how likely each is accepted along with its ancestors: none
    likelier than the one before it.
    """

    guesses: tuple[Guess, ...] = ()
    parents: tuple[int, ...] = ()
    expected: tuple[float, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """The guesses' tokens."""
        return tuple(guess.token for guess in self.guesses)


NO_GUESSES = GuessTree()


def likeliest_tree(
    children: Callable[[int, int | None], Sequence[Guess]], most: int, depth: int, branches: bool
) -> GuessTree:
    """Return the tree of at most `most` tokens, `depth` deep, with the greatest expected number of
    accepted ones: best first, as a child is never likelier than its parent.

    children(step, token) are the guesses of the step-th token to come, from 0 on, after a guessed
    one, likeliest first. Without branches it is a path.
    """
    guesses: list[Guess] = []
    parents: list[int] = []
    expected: list[float] = []
    depths: list[int] = []
    # The next child of each node, by its chance; among equals the one that was found first.
    heap: list[tuple[float, int, int, int, Sequence[Guess]]] = []
    found = 0

    def offer(above: float, parent: int, rank: int, siblings: Sequence[Guess]) -> None:
        nonlocal found
        if rank < len(siblings):
            heappush(heap, (-above * siblings[rank].chance, found, parent, rank, siblings))
            found += 1

    if depth > 0:
        offer(1.0, ROOT, 0, children(0, None))
    while heap and len(guesses) < most:
        chance, _, parent, rank, siblings = heappop(heap)
        node, guess = len(guesses), siblings[rank]
        guesses.append(guess)
        parents.append(parent)
        expected.append(-chance)
        depths.append(1 if parent == ROOT else 1 + depths[parent])
        if branches:
            offer(1.0 if parent == ROOT else expected[parent], parent, 1 + rank, siblings)
        if depths[node] < depth:
            offer(-chance, node, 0, children(depths[node], guess.token))
    return GuessTree(tuple(guesses), tuple(parents), tuple(expected))
