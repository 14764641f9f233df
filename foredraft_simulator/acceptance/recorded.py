"""Acceptance played from a recorded run: a draft keeps what the recorded one there kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from foredraft_simulator.acceptance.drawn import DrawnDraft
from foredraft_simulator.acceptance.luck import uniform
from foredraft_simulator.recorded_runs.records import RecordedRequest, RecordedRound, RecordedRun

_ROUND, _GUESS = 11, 12


class _Text(NamedTuple):
    """A recorded request's drafted rounds, in order and by after how many tokens each began."""

    rounds: Sequence[RecordedRound]
    at: Mapping[int, RecordedRound]
    tokens: int


class Recorded:
    """Request n plays recorded request n, modulo their number, and its text again and again.

    Where no recorded round began, any of the text's rounds is played: the one in whose middle it is
    would be a long one more often than not. Nodes that no verifier looked at were not worth their
    rows: a draft ends before them.
    """

    def __init__(self, run: RecordedRun, seed: int) -> None:
        self._seed = seed
        texts = [_text(request) for request in run.requests]
        self._texts = [text for text in texts if text.rounds]
        rounds = [each for text in self._texts for each in text.rounds]
        self._rates = node_rates(rounds)
        ahead = [each.ahead for each in rounds if each.ahead != "no"]
        self.guess_rate = ahead.count("hit") / len(ahead) if ahead else 0.0

    def draft(self, request: int, offset: int, nodes: int) -> DrawnDraft:
        """Return a tree that keeps what was recorded."""
        if not self._texts:
            return DrawnDraft((), (), (1.0,), path=False)
        text = self._texts[request % len(self._texts)]
        played = text.at.get(offset % text.tokens)
        if played is None:
            any_of = uniform(self._seed, _ROUND, request, offset)
            played = text.rounds[int(any_of * len(text.rounds))]
        nodes = min(nodes, played.bought)
        expected = self._rates[:nodes]
        bounds = [1.0, *expected]
        # Node i is the last one kept if none after it is.
        none_after = [*accumulate([1 - each for each in reversed(expected)], mul, initial=1.0)]
        last = [a * b for a, b in zip(bounds, reversed(none_after), strict=True)]
        known = set(played.kept)
        kept = [node in known for node in range(nodes)]
        return DrawnDraft(kept, expected, last, path=False)

    def guessed(self, request: int, offset: int) -> bool:
        """Return whether the guess is right."""
        return uniform(self._seed, _GUESS, request, offset) < self.guess_rate


def node_rates(rounds: Sequence[RecordedRound]) -> list[float]:
    """Return how often the first, second, ... node was kept where it was verified, never rising."""
    verified = [0] * max((each.bought for each in rounds), default=0)
    kept = [0] * len(verified)
    for each in rounds:
        for node in range(each.bought):
            verified[node] += 1
        for node in each.kept:
            kept[node] += 1
    rates = [a / b for a, b in zip(kept, verified, strict=True)]
    return list(accumulate(rates, min))


def _text(request: RecordedRequest) -> _Text:
    starts = [0, *accumulate(each.tokens for each in request.rounds)]
    drafted = {
        start: each
        for start, each in zip(starts, request.rounds, strict=False)
        if each.source == "drafter" and each.bought
    }
    return _Text(tuple(drafted.values()), drafted, request.output_tokens)
