"""The goodput controller: the draft length with the most committed tokens per second. Pure.

Acceptance is estimated by place in the block. A shorter block is the beginning
of a longer one, of a tree as of a path, so every block tells of all lengths up to its own. What is
measured is what was asked for: a proposal that answers less does so in the figures, too. Costs are
measured in the session itself, so the queue at the drafter, the round trip and run-ahead hits are
in them. Length 0, plain decoding, is one of the choices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

from orchestrator.length.controllers import Cost, Observation

# Weight of what was seen before when something new is seen. How easy the text is changes from one
# session to the next: about the last fifty blocks count. What a place is worth next to the others,
# and what things cost, change slowly, and are small differences of noisy figures: the last 500.
_EASE_FADE = 0.98
_SLOW_FADE = 0.998
# What is believed at first, in accepted tokens, blocks, and squared lengths.
_EASE_WEIGHT = 4.0
_PLACE_WEIGHT = 12.0
_SLOPE_WEIGHT = 100.0
# What one more draft token costs before lengths have varied, as a share of the round.
_PRIOR_SLOPE = 0.02
# Every length is tried so often at first, and the longest again every so many rounds.
_SWEEPS = 3
_TRY_EVERY = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A fading least-squares line seconds = base + slope * n, drawn to a prior at first."""

    weight: float = 0.0
    n: float = 0.0
    nn: float = 0.0
    s: float = 0.0
    ns: float = 0.0

    def seen(self, n: float, seconds: float) -> Line:
        """Return the line after one more measurement."""
        old = (_SLOW_FADE * x for x in (self.weight, self.n, self.nn, self.s, self.ns))
        new = (1.0, n, n * n, seconds, n * seconds)
        return Line(*(a + b for a, b in zip(old, new, strict=True)))

    def at(self, n: float) -> float:
        """Return the expected seconds at n; the line must have been seen once.

        A slope is believed as far as n varied; without that, one more costs a little of the mean.
        Rounds differ by much more than their lengths explain, so a little variation is not enough.
        """
        mean_n, mean_s = self.n / self.weight, self.s / self.weight
        spread = self.nn - self.weight * mean_n**2
        shared = self.ns - self.weight * mean_n * mean_s
        prior = _PRIOR_SLOPE * mean_s
        slope = max(0.0, (shared + _SLOPE_WEIGHT * prior) / (spread + _SLOPE_WEIGHT))
        return max(1e-9, mean_s + slope * (n - mean_n))


@dataclass(frozen=True, slots=True)
class GoodputState:
    """Fading (accepted, hoped for) counts: of late over whole blocks, and by place over long.

    A place's hopes are the ease of the text when it was drafted: being asked for in easy text only
    makes no place look good. drafted and plain are the two cost lines.
    """

    places: tuple[tuple[float, float], ...]
    late: tuple[float, float] = (0.0, 0.0)
    drafted: Line = Line()
    plain: Line = Line()
    rounds: int = 0
    plain_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GoodputController:
    """Picks among lengths by expected tokens per second.

    prior is the acceptance of a token after accepted ones before anything was seen. Plain decoding
    must win by the factor margin: text changes, and a session that drafts notices sooner. After
    probe_tokens tokens of plain decoding a draft is tried again; plain decoding is tried once after
    probe_rounds rounds, with plain_steps tokens a round.
    """

    lengths: tuple[int, ...]
    prior: float
    plain_steps: int
    probe_rounds: int
    probe_tokens: int
    margin: float

    learns: ClassVar[bool] = True

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def initial(self) -> GoodputState:
        return GoodputState(((0.0, 0.0),) * self.longest)

    def update(self, state: GoodputState, observation: Observation) -> GoodputState:
        asked = min(observation.asked, self.longest)
        accepted, hoped = state.late
        worth = sum(self._worths(state)[:asked])
        late = (_EASE_FADE * accepted + observation.accepted, _EASE_FADE * hoped + worth)
        ease, places = _ease(state), list(state.places)
        for place in range(asked):
            accepted, hoped = places[place]
            held = place in observation.places
            places[place] = (_SLOW_FADE * accepted + held, _SLOW_FADE * hoped + ease)
        return replace(state, places=tuple(places), late=late)

    def spent(self, state: GoodputState, cost: Cost) -> GoodputState:
        if cost.asked:
            drafted = state.drafted.seen(cost.asked, cost.seconds)
            return replace(state, drafted=drafted, rounds=state.rounds + 1, plain_tokens=0)
        plain = state.plain.seen(cost.tokens, cost.seconds)
        return replace(state, plain=plain, plain_tokens=state.plain_tokens + cost.tokens)

    def next_length(self, state: GoodputState) -> int:
        return self._choice(state)[0]

    def explain(self, state: GoodputState) -> str:
        return self._choice(state)[1]

    def expected(self, state: GoodputState) -> list[float]:
        """Return the expected number of tokens that a round commits, by draft length from 0."""
        ease = _ease(state)
        return list(accumulate((ease * worth for worth in self._worths(state)), initial=1.0))

    def _worths(self, state: GoodputState) -> list[float]:
        """Return for each place how often its token is accepted in text of ordinary ease.

        Long runs of accepted tokens are rare, so a place that was seldom asked for is believed to
        be worth a little less than the one before it.
        """
        worths, before = [], 1.0
        for accepted, hoped in state.places:
            likely = self.prior * before
            before = (accepted + _PLACE_WEIGHT * likely) / (hoped + _PLACE_WEIGHT)
            worths.append(before)
        return worths

    def _choice(self, state: GoodputState) -> tuple[int, str]:
        drafting = [length for length in self.lengths if length > 0]
        if state.rounds < _SWEEPS * len(drafting):
            # From the middle on, so that the first guess is not far off.
            return drafting[(state.rounds + len(drafting) // 2) % len(drafting)], "is measured"
        tokens = self.expected(state)
        rates = {n: tokens[n] / state.drafted.at(n) for n in drafting}
        best = max(rates, key=rates.__getitem__)
        expected = f"{rates[best]:.0f} tokens/s with {best} drafted"
        if 0 in self.lengths:
            if not state.plain.weight and state.rounds >= self.probe_rounds:
                return 0, "plain decoding is measured"
            plain = self._plainly(state)
            if plain > self.margin * rates[best]:
                if state.plain_tokens >= self.probe_tokens:
                    return best, "a draft is tried again"
                return 0, f"{plain:.0f} tokens/s plainly, {expected}"
            expected += f", {plain:.0f} plainly"
        if state.rounds % _TRY_EVERY:
            return best, expected
        # The longest tells of all others, if it is not itself the one in use.
        tried = drafting[len(drafting) // 2] if best == drafting[-1] else drafting[-1]
        return tried, "is measured again"

    def _plainly(self, state: GoodputState) -> float:
        """Return the tokens per second of plain decoding, 0 before it was measured."""
        if not state.plain.weight:
            return 0.0
        return self.plain_steps / state.plain.at(self.plain_steps)


def _ease(state: GoodputState) -> float:
    """Return accepted tokens of late over those that ordinary text would have given."""
    accepted, hoped = state.late
    return (accepted + _EASE_WEIGHT) / (hoped + _EASE_WEIGHT)
