"""How well drafts of one text fare, against those of all texts. Pure.

- a_i is the acceptance at position i of a block in average text. With A_i the accepted tokens there
  and E_i the blocks that reached it, each counted with the r of its round by the mean r of drafted
  rounds, so that long blocks in easy text do not make late positions look good:
      a_i = (A_i + POSITION_WEIGHT p a_(i-1)) / (E_i + POSITION_WEIGHT),  a_(-1) = 1.
  p is the prior: the acceptance of a token after accepted ones. Long runs of accepted tokens are
  rare, so a position that was seldom reached is believed to be a little worse than the one before.
- r is the recent acceptance relative to average text. With A the accepted tokens of recent blocks
  and E the sums of a_i that were expected of them:
      r = (A + RECENT_WEIGHT g / g_0) / (E + RECENT_WEIGHT).
  What repeats itself is easy for any draft, and what does not is hard.
- g is how many tokens a pass of plain rounds commits: more than one where the target drafts of the
  text's own n-grams. g_0 is that of all texts, and what is believed of a text before it is known.

A shorter block is the beginning of a longer one, of a tree as of a path, so a block of k tokens is
an observation of the positions below k; those from k on are unobserved, not rejected. Estimates
fade by a factor with each observation, so that they follow a text that changes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from orchestrator.length.load import NOTHING_SEEN, Mean

# How fast r forgets: text changes within a session, about the last 50 blocks count.
_RECENT_FADE = 0.98
# How fast a_i forgets: small differences of noisy figures, about the last 500 count.
_SLOW_FADE = 0.998
# The weights of the priors: of r in accepted tokens, of a mean r of 1 in rounds, of g in passes,
# of a_i in blocks.
_RECENT_WEIGHT = 4.0
_EASE_WEIGHT = 4.0
_PLAIN_WEIGHT = 16.0
_POSITION_WEIGHT = 12.0


class AllTexts(NamedTuple):
    """positions holds (A_i, E_i), ease the mean r, plain the tokens and passes of plain rounds."""

    positions: tuple[tuple[float, float], ...]
    ease: Mean = NOTHING_SEEN
    plain: Mean = NOTHING_SEEN

    def acceptance(self, prior: float) -> list[float]:
        """Return a_i for every position, where p is prior."""
        found, before = [], 1.0
        for accepted, reached in self.positions:
            before = (accepted + _POSITION_WEIGHT * prior * before) / (reached + _POSITION_WEIGHT)
            found.append(before)
        return found

    @property
    def plain_tokens(self) -> float:
        """g_0."""
        return max(1.0, self.plain.value(1.0, _PLAIN_WEIGHT))


class OneText(NamedTuple):
    """recent holds (A, E), plain the tokens and passes of plain rounds."""

    recent: tuple[float, float] = (0.0, 0.0)
    plain: Mean = NOTHING_SEEN

    def relative(self, others: AllTexts) -> float:
        """Return r."""
        accepted, expected = self.recent
        prior = self.plain_tokens(others) / others.plain_tokens
        return (accepted + _RECENT_WEIGHT * prior) / (expected + _RECENT_WEIGHT)

    def plain_tokens(self, others: AllTexts) -> float:
        """Return g."""
        return max(1.0, self.plain.value(others.plain_tokens, _PLAIN_WEIGHT))


def drafted(
    text: OneText, others: AllTexts, k: int, places: Collection[int], accepted: int, prior: float
) -> tuple[OneText, AllTexts]:
    """Return both after a block of k tokens, of which those at some places were accepted."""
    before, expected = text.recent
    recent = (
        _RECENT_FADE * before + accepted,
        _RECENT_FADE * expected + sum(others.acceptance(prior)[:k]),
    )
    relative, positions = text.relative(others), list(others.positions)
    ease = others.ease.observe(relative)
    weight = relative / ease.value(1.0, _EASE_WEIGHT)
    for place in range(k):
        kept, reached = positions[place]
        hit = place in places
        positions[place] = (_SLOW_FADE * kept + hit, _SLOW_FADE * reached + weight)
    return OneText(recent, text.plain), AllTexts(tuple(positions), ease, others.plain)


def decoded_plainly(
    text: OneText, others: AllTexts, tokens: int, passes: int
) -> tuple[OneText, AllTexts]:
    """Return both after so many tokens in so many passes without a drafter's draft."""
    return (
        OneText(text.recent, text.plain.observe(tokens, passes)),
        AllTexts(others.positions, others.ease, others.plain.observe(tokens, passes)),
    )
