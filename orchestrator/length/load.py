"""What rounds take at one load: a verifier that few or many sessions share. Pure.

A session's seconds outside the passes, and how much of a draft is bought, depend on how many
sessions share the machine. So they are learnt for each order of magnitude by itself, and hold when
the load comes back.
"""

from __future__ import annotations

from typing import NamedTuple

# How fast means forget: about the last 50 rounds count.
_FADE = 0.98
# The weight of the prior that all offered tokens are bought, in tokens.
_BOUGHT_WEIGHT = 4.0
# The weight of the prior that rounds take what was predicted, in rounds.
_SLOWER_WEIGHT = 3.0
# The weight of the prior that plain rounds take no longer than passes over one row, in passes, and
# how fast what was seen of them is forgotten while drafts are made: by half in about 140 drafted
# rounds.
_PLAIN_WEIGHT = 8.0
_PLAIN_FADE = 0.995
# The weight of the prior that plain sessions lose nothing beside those that draft, in rounds.
_LOST_WEIGHT = 4.0
# The weight of the prior that a session's first drafted rounds take what later ones do, in rounds.
_COLD_WEIGHT = 1.0
# Those of the first sessions, which connect, are soon forgotten.
_COLD_FADE = 0.8
# 1 session, 2, 4, 8 and so on at most.
NUM_LOADS = 9


def load_of(sessions: int) -> int:
    """Return the place of so many sessions among the loads."""
    return min(NUM_LOADS - 1, max(0, sessions - 1).bit_length())


class Mean(NamedTuple):
    """The fading sums of a weighted mean."""

    weight: float = 0.0
    total: float = 0.0

    def observe(self, total: float, weight: float = 1.0) -> Mean:
        """Return the mean after one more observation of so much weight."""
        return Mean(_FADE * self.weight + weight, _FADE * self.total + total)

    def faded(self, factor: float) -> Mean:
        """Return the mean with less weight against its prior."""
        return Mean(factor * self.weight, factor * self.total)

    def value(self, prior: float, weight: float) -> float:
        """Return the mean of what was observed and a prior of some weight."""
        whole = self.weight + weight
        return (self.total + weight * prior) / whole if whole else prior


NOTHING_SEEN = Mean()


class Load(NamedTuple):
    """Means over rounds, and the number of drafted ones.

    Times outside the passes are in passes over one row of each session, by the price of the moment:
    what makes a machine slower for a while makes both so.
    """

    away: Mean = NOTHING_SEEN
    plain_pass: Mean = NOTHING_SEEN
    lost: Mean = NOTHING_SEEN
    cold: Mean = NOTHING_SEEN
    bought_share: Mean = NOTHING_SEEN
    slower: Mean = NOTHING_SEEN
    rounds: int = 0

    @property
    def bought(self) -> float:
        """The share of offered draft tokens that the verifier buys."""
        return self.bought_share.value(1.0, _BOUGHT_WEIGHT)

    @property
    def excess(self) -> float:
        """How many times as long as predicted drafted rounds take; 1 at least.

        What a draft costs other sessions is predicted, but not in the session's own time.
        """
        return max(1.0, self.slower.value(1.0, _SLOWER_WEIGHT))

    @property
    def plain_passes(self) -> float:
        """The time of plain rounds for each of their passes, own drafts and messages and all, in
        passes over one row; 1 at least.

        Seen only while nobody drafts, so what is doubtful is taken for little: else a few slow
        rounds would have everyone draft, and nobody see better.
        """
        return max(1.0, self.plain_pass.value(1.0, _PLAIN_WEIGHT))

    @property
    def lost_share(self) -> float:
        """The share of a plain session's tokens that is lost for each session that drafts."""
        return max(0.0, self.lost.value(0.0, _LOST_WEIGHT))

    @property
    def cold_s(self) -> float:
        """What each of a session's first drafted rounds takes longer than later ones."""
        return max(0.0, self.cold.value(0.0, _COLD_WEIGHT))

    def drafted(self, bought: int, offered: int) -> Load:
        """Return the load after one more drafted round, of which so much was bought."""
        return self._replace(
            plain_pass=self.plain_pass.faded(_PLAIN_FADE),
            bought_share=self.bought_share.observe(bought, offered),
            rounds=self.rounds + 1,
        )

    def timed(self, away_passes: float, seconds: float, predicted_s: float) -> Load:
        """Return the load after a drafted round's time outside the passes, and its seconds against
        those that were predicted.
        """
        slower = self.slower.observe(seconds / predicted_s)
        return self._replace(away=self.away.observe(away_passes), slower=slower)

    def began(self, excess_s: float) -> Load:
        """Return the load after one of a session's first drafted rounds, that much longer than
        predicted.
        """
        return self._replace(cold=self.cold.faded(_COLD_FADE).observe(excess_s))

    def plain(self, in_passes: float, passes: int) -> Load:
        """Return the load after a plain round of so many passes, which took the time of more."""
        return self._replace(plain_pass=self.plain_pass.observe(in_passes, passes))

    def beside(self, lost: float, drafting: int) -> Load:
        """Return the load after a plain round that lost a share of its tokens, beside so many
        sessions that draft.
        """
        return self._replace(lost=self.lost.observe(lost, drafting))
