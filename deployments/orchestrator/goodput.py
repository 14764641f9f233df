"""The goodput controller: the draft length with the most committed tokens per second. Pure.

design.md section 6. Acceptance is estimated by position, where a position counts only if everything
before it was accepted and it was drafted at all; costs are measured in the session itself, so the
queue at the drafter, the round trip and run-ahead hits are in them. Length 0, plain decoding, is
one of the choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from deployments.orchestrator.adl import Cost, Observation

# Weight of what was seen before when something new is seen: of acceptance about the last twenty
# rounds count, of costs, which change with the load and not with the text, the last hundred.
_FADE = 0.95
_COST_FADE = 0.99
# Weight of the newest block in the share of paths.
_SHARE_STEP = 0.05
# What a position is worth before it was ever tried, in observations.
_PRIOR_WEIGHT = 2.0
# What one more draft token costs before lengths have varied, as a share of the round.
_PRIOR_SLOPE = 0.03
_RIDGE = 4.0
# Every length is tried so often at first, and the next longer or shorter one every so many rounds.
_SWEEPS = 2
_TRY_EVERY = 16
# Nodes of a tree buy depth slowly: expected tokens grow as log(1 + n) to this power. (Of lengths 4
# to 15 in bench/results/papers.md, to 0.8 or more at temperature 0, to 0.6 at 0.8.)
_TREE_POWER = 0.85


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
        old = (_COST_FADE * x for x in (self.weight, self.n, self.nn, self.s, self.ns))
        new = (1.0, n, n * n, seconds, n * seconds)
        return Line(*(a + b for a, b in zip(old, new, strict=True)))

    def at(self, n: float) -> float:
        """Return the expected seconds at n; the line must have been seen once.

        A slope is believed as far as n varied; without that, one more costs a little of the mean.
        Rounds differ by much more than their lengths explain, so a little variation is not enough.
        """
        mean_n, mean_s = self.n / self.weight, self.s / self.weight
        spread = self.nn / self.weight - mean_n**2
        shared = self.ns / self.weight - mean_n * mean_s
        slope = max(0.0, (shared + _RIDGE * _PRIOR_SLOPE * mean_s) / (spread + _RIDGE))
        return max(1e-9, mean_s + slope * (n - mean_n))


@dataclass(frozen=True, slots=True)
class GoodputState:
    """Fading (accepted, tried) counts of paths by position and (accepted tokens, blocks) of trees,
    how many blocks were paths, the two cost lines, and where things stand.
    """

    positions: tuple[tuple[float, float], ...]
    blocks: tuple[float, float] = (0.0, 0.0)
    paths: float = 0.0
    drafted: Line = Line()
    plain: Line = Line()
    rounds: int = 0
    plain_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GoodputController:
    """Picks among lengths by expected tokens per second.

    tree says that a length is a node budget; a block that is a path all the same, as a copy is,
    tells of positions. Plain decoding must win by the
    factor margin: text changes, and a session that drafts notices sooner. After probe_tokens
    tokens of plain decoding a draft is tried again; plain decoding is tried once after probe_rounds
    rounds, with plain_steps tokens a round.
    """

    lengths: tuple[int, ...]
    tree: bool
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
        # Each kind of block fades by its own number, so that the rarer one is not forgotten.
        path = not self.tree or observation.nodes == observation.depth
        paths = state.paths + _SHARE_STEP * (path - state.paths)
        if not path:
            accepted, blocks = state.blocks
            seen = (_FADE * accepted + observation.accepted, _FADE * blocks + 1)
            return replace(state, blocks=seen, paths=paths)
        counts = [(_FADE * a, _FADE * t) for a, t in state.positions]
        for place in range(min(observation.accepted + 1, observation.depth, len(counts))):
            accepted, tried = counts[place]
            counts[place] = (accepted + (place < observation.accepted), tried + 1)
        return replace(state, positions=tuple(counts), paths=paths)

    def spent(self, state: GoodputState, cost: Cost) -> GoodputState:
        if cost.nodes:
            drafted = state.drafted.seen(cost.nodes, cost.seconds)
            return replace(state, drafted=drafted, rounds=state.rounds + 1, plain_tokens=0)
        plain = state.plain.seen(cost.tokens, cost.seconds)
        return replace(state, plain=plain, plain_tokens=state.plain_tokens + cost.tokens)

    def next_length(self, state: GoodputState) -> int:
        return self._choice(state)[0]

    def explain(self, state: GoodputState) -> str:
        return self._choice(state)[1]

    def expected(self, state: GoodputState, length: int) -> float:
        """Return the expected number of tokens that a round of that length commits."""
        if not self.tree:
            return self._of_path(state, length)
        of_tree = 1.0 + self._accepted(state, length)
        return state.paths * self._of_path(state, length) + (1 - state.paths) * of_tree

    def _of_path(self, state: GoodputState, length: int) -> float:
        """Return the expected number of tokens that a round with a path of that length commits."""
        reach, total = 1.0, 1.0
        for accepted, tried in state.positions[:length]:
            reach *= (accepted + self.prior * _PRIOR_WEIGHT) / (tried + _PRIOR_WEIGHT)
            total += reach
        return total

    def _accepted(self, state: GoodputState, budget: int) -> float:
        """Return the expected accepted length of a tree of that many nodes.

        The mean at the budgets in use, scaled: others buy more or less depth.
        """
        accepted, blocks = state.blocks
        prior = self.prior / (1 - self.prior)
        mean = (accepted + prior * _PRIOR_WEIGHT) / (blocks + _PRIOR_WEIGHT)
        used = state.drafted.n / state.drafted.weight if state.drafted.weight else self.longest
        share = math.log1p(budget) / math.log1p(max(used, 1.0))
        return mean * math.pow(share, _TREE_POWER)

    def _choice(self, state: GoodputState) -> tuple[int, str]:
        drafting = [length for length in self.lengths if length > 0]
        if state.rounds < _SWEEPS * len(drafting):
            # From the middle on, so that the first guess is not far off.
            return drafting[(state.rounds + len(drafting) // 2) % len(drafting)], "is measured"
        rates = {n: self.expected(state, n) / state.drafted.at(n) for n in drafting}
        best = max(rates, key=rates.__getitem__)
        why = f"{rates[best]:.0f} tokens/s expected"
        turn, last = divmod(state.rounds, _TRY_EVERY)
        if not last:
            place = drafting.index(best) + (1 if turn % 2 else -1)
            best = drafting[min(max(place, 0), len(drafting) - 1)]
        if 0 not in self.lengths:
            return best, why
        if not state.plain.weight:
            due = state.rounds >= self.probe_rounds
            return (0, "plain decoding is measured") if due else (best, why)
        plain = self.plain_steps / state.plain.at(self.plain_steps)
        if plain <= self.margin * rates[best]:
            return best, f"{why}, {plain:.0f} plainly"
        if state.plain_tokens >= self.probe_tokens:
            return best, "a draft is tried again"
        return 0, f"{plain:.0f} tokens/s plainly, {rates[best]:.0f} with {best} drafted"
