"""The goodput controller: the draft length with the most committed tokens per second. Pure.

The goodput of a draft length k is G(k) = T(k) / S(k): the tokens that a round commits over the
seconds that it takes. Both are estimated from the session's own rounds, so the queue at the
drafter, the round trip and run-ahead hits are in them, and so is a proposal that drafts fewer than
k tokens.

Tokens: T(k) = 1 + r (a_0 + a_1 + ... + a_(k-1)). The 1 is the correction or the bonus token.

- a_i is the acceptance at position i of a block in average text. With A_i the accepted tokens there
  and E_i the blocks that reached it, each counted with the r of its round, so that long blocks in
  easy text do not make late positions look good:
      a_i = (A_i + POSITION_WEIGHT p a_(i-1)) / (E_i + POSITION_WEIGHT),  a_(-1) = 1.
  p is the prior: the acceptance of a token after accepted ones. Long runs of accepted tokens are
  rare, so a position that was seldom reached is believed to be a little worse than the one before.
- r is the recent acceptance relative to average text. With A the accepted tokens of recent blocks
  and E the sums of a_i that were expected of them:
      r = (A + RECENT_WEIGHT) / (E + RECENT_WEIGHT).
A shorter block is the beginning of a longer one, of a tree as of a path, so a block of k tokens is
an observation of the positions below k; those from k on are unobserved, not rejected.

Seconds: S(k) = s + b (k - m) with m and s the means of k and seconds over drafted rounds, and
      b = max(0, (C + SLOPE_WEIGHT PRIOR_SLOPE s) / (V + SLOPE_WEIGHT)),
V and C being the summed squares of k - m and products with seconds - s: least squares, drawn to a
prior slope until lengths have varied enough. Plain rounds have a line of their own, over tokens.

Every estimate fades by a factor with each observation, so that it follows a text, or a machine,
that changes. Length 0, plain decoding, is one of the choices: G(0) = n / S(n) for rounds of n
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

from orchestrator.length.controllers import Cost, Observation

# How fast r forgets: text changes within a session, about the last 50 blocks count.
_RECENT_FADE = 0.98
# How fast a_i and S forget: small differences of noisy figures, about the last 500 count.
_SLOW_FADE = 0.998
# The weights of the priors: of r = 1 in accepted tokens, of a_i in blocks, of b in squared tokens.
_RECENT_WEIGHT = 4.0
_POSITION_WEIGHT = 12.0
_SLOPE_WEIGHT = 100.0
# The prior of b: what one more draft token costs, as a share of the round.
_PRIOR_SLOPE = 0.02
# At first every length is measured so often; later another than the best every so many rounds.
_SWEEPS = 3
_REMEASURE_EVERY = 32


@dataclass(frozen=True, slots=True)
class Line:
    """The fading sums of a least-squares line seconds = s + b (n - m)."""

    weight: float = 0.0
    n: float = 0.0
    nn: float = 0.0
    s: float = 0.0
    ns: float = 0.0

    def observe(self, n: float, seconds: float) -> Line:
        """Return the line after one more measurement."""
        old = (_SLOW_FADE * x for x in (self.weight, self.n, self.nn, self.s, self.ns))
        new = (1.0, n, n * n, seconds, n * seconds)
        return Line(*(a + b for a, b in zip(old, new, strict=True)))

    def at(self, n: float) -> float:
        """Return the expected seconds at n; there must have been a measurement."""
        mean_n, mean_s = self.n / self.weight, self.s / self.weight
        variance = self.nn - self.weight * mean_n**2
        covariance = self.ns - self.weight * mean_n * mean_s
        prior = _PRIOR_SLOPE * mean_s
        slope = max(0.0, (covariance + _SLOPE_WEIGHT * prior) / (variance + _SLOPE_WEIGHT))
        return max(1e-9, mean_s + slope * (n - mean_n))


@dataclass(frozen=True, slots=True)
class GoodputState:
    """positions holds (A_i, E_i), recent (A, E); drafted and plain are the two lines of seconds.

    rounds counts the drafted rounds, plain_tokens those committed plainly since the last one.
    """

    positions: tuple[tuple[float, float], ...]
    recent: tuple[float, float] = (0.0, 0.0)
    drafted: Line = Line()
    plain: Line = Line()
    rounds: int = 0
    plain_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GoodputController:
    """Picks among lengths by expected tokens per second; prior is p.

    Plain decoding must win by the factor margin: text changes, and a session that drafts notices
    sooner. After probe_tokens tokens of plain decoding a draft is tried again; plain decoding, with
    plain_steps tokens a round, is measured once after probe_rounds rounds.
    """

    lengths: tuple[int, ...]
    prior: float
    plain_steps: int
    probe_rounds: int
    probe_tokens: int
    margin: float

    learns: ClassVar[bool] = True

    @property
    def max_k(self) -> int:
        return max(self.lengths)

    def initial(self) -> GoodputState:
        return GoodputState(((0.0, 0.0),) * self.max_k)

    def update(self, state: GoodputState, observation: Observation) -> GoodputState:
        k = min(observation.requested_k, self.max_k)
        accepted, expected = state.recent
        recent = (
            _RECENT_FADE * accepted + observation.accepted,
            _RECENT_FADE * expected + sum(self._position_acceptance(state)[:k]),
        )
        relative, positions = _relative_acceptance(state), list(state.positions)
        for place in range(k):
            accepted, reached = positions[place]
            hit = place in observation.places
            positions[place] = (_SLOW_FADE * accepted + hit, _SLOW_FADE * reached + relative)
        return replace(state, positions=tuple(positions), recent=recent)

    def spent(self, state: GoodputState, cost: Cost) -> GoodputState:
        if cost.requested_k:
            drafted = state.drafted.observe(cost.requested_k, cost.seconds)
            return replace(state, drafted=drafted, rounds=state.rounds + 1, plain_tokens=0)
        plain = state.plain.observe(cost.tokens, cost.seconds)
        return replace(state, plain=plain, plain_tokens=state.plain_tokens + cost.tokens)

    def next_k(self, state: GoodputState) -> int:
        return self._choice(state)[0]

    def explain(self, state: GoodputState) -> str:
        return self._choice(state)[1]

    def expected(self, state: GoodputState) -> list[float]:
        """Return T(k), the expected number of tokens that a round commits, for k from 0 on."""
        relative = _relative_acceptance(state)
        gains = (relative * a for a in self._position_acceptance(state))
        return list(accumulate(gains, initial=1.0))

    def _position_acceptance(self, state: GoodputState) -> list[float]:
        """Return a_i for every position."""
        found, before = [], 1.0
        for accepted, reached in state.positions:
            prior = self.prior * before
            before = (accepted + _POSITION_WEIGHT * prior) / (reached + _POSITION_WEIGHT)
            found.append(before)
        return found

    def _choice(self, state: GoodputState) -> tuple[int, str]:
        """Return the next k and the reason."""
        drafting = [k for k in self.lengths if k > 0]
        if state.rounds < _SWEEPS * len(drafting):
            # From the middle on, so that the first guess is not far off.
            return drafting[(state.rounds + len(drafting) // 2) % len(drafting)], "is measured"
        tokens = self.expected(state)
        goodput = {k: tokens[k] / state.drafted.at(k) for k in drafting}
        best = max(goodput, key=goodput.__getitem__)
        expected = f"{goodput[best]:.0f} tokens/s with {best} drafted"
        if 0 in self.lengths:
            if not state.plain.weight and state.rounds >= self.probe_rounds:
                return 0, "plain decoding is measured"
            plain = self._plain_goodput(state)
            if plain > self.margin * goodput[best]:
                if state.plain_tokens >= self.probe_tokens:
                    return best, "a draft is tried again"
                return 0, f"{plain:.0f} tokens/s plainly, {expected}"
            expected += f", {plain:.0f} plainly"
        if state.rounds % _REMEASURE_EVERY:
            return best, expected
        # The longest is an observation of all others, if it is not itself the one in use.
        other = drafting[len(drafting) // 2] if best == drafting[-1] else drafting[-1]
        return other, "is measured again"

    def _plain_goodput(self, state: GoodputState) -> float:
        """Return G(0), 0 before plain decoding was measured."""
        if not state.plain.weight:
            return 0.0
        return self.plain_steps / state.plain.at(self.plain_steps)


def _relative_acceptance(state: GoodputState) -> float:
    """Return r."""
    accepted, expected = state.recent
    return (accepted + _RECENT_WEIGHT) / (expected + _RECENT_WEIGHT)
