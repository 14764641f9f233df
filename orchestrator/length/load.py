"""What rounds take at one load: a verifier that few or many sessions share. Pure.

A session's seconds outside the passes, and how much of a draft is bought, depend on how many
sessions share the machine. So they are learnt for each order of magnitude by itself, and hold when
the load comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# How fast means forget: about the last 50 rounds count.
_FADE = 0.98
# The weight of the prior that all offered tokens are bought, in tokens.
_BOUGHT_WEIGHT = 4.0
# The weight of the prior that rounds take what was predicted, in rounds.
_SLOWER_WEIGHT = 3.0
# 1 session, 2, 4, 8 and so on at most.
NUM_LOADS = 9


def load_of(sessions: int) -> int:
    """Return the place of so many sessions among the loads."""
    return min(NUM_LOADS - 1, max(0, sessions - 1).bit_length())


@dataclass(frozen=True, slots=True)
class Mean:
    """The fading sums of a weighted mean."""

    weight: float = 0.0
    total: float = 0.0

    def observe(self, total: float, weight: float = 1.0) -> Mean:
        """Return the mean after one more observation of so much weight."""
        return Mean(_FADE * self.weight + weight, _FADE * self.total + total)

    def value(self, prior: float, weight: float) -> float:
        """Return the mean of what was observed and a prior of some weight."""
        whole = self.weight + weight
        return (self.total + weight * prior) / whole if whole else prior


@dataclass(frozen=True, slots=True)
class Load:
    """Means over rounds, and the number of drafted ones."""

    away: Mean = Mean()
    plain_away: Mean = Mean()
    bought_share: Mean = Mean()
    slower: Mean = Mean()
    rounds: int = 0

    @property
    def bought(self) -> float:
        """The share of offered draft tokens that the verifier buys."""
        return self.bought_share.value(1.0, _BOUGHT_WEIGHT)

    @property
    def excess(self) -> float:
        """How many times as long as predicted drafted rounds take for a token; 1 at least.

        What a draft costs other sessions is predicted, but not in the session's own time.
        """
        return max(1.0, self.slower.value(1.0, _SLOWER_WEIGHT))

    def drafted(self, bought: int, offered: int) -> Load:
        """Return the load after one more drafted round, of which so much was bought."""
        return replace(
            self, bought_share=self.bought_share.observe(bought, offered), rounds=self.rounds + 1
        )

    def timed(self, away_s: float, seconds_ratio: float, tokens_ratio: float) -> Load:
        """Return the load after a drafted round's time outside the passes, and its seconds and
        tokens against what was predicted.
        """
        slower = self.slower.observe(seconds_ratio, tokens_ratio)
        return replace(self, away=self.away.observe(away_s), slower=slower)

    def plain(self, away_s: float, tokens: int) -> Load:
        """Return the load after a plain round of so many tokens."""
        return replace(self, plain_away=self.plain_away.observe(away_s, tokens))
