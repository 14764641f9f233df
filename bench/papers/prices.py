"""What rounds cost where nothing disturbs the machine: medians over every round of a table. Pure.

Lengths differ by a few percent, the same run at two moments by more. Text and acceptance repeat
exactly, so runs are compared by what their rounds cost as a rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from bench.papers.ways import Decoded, Spent

# A price of fewer rounds than this is no better than its neighbour's.
_LEAST = 5
# A round that waited for less than this had its draft at hand.
_AT_HAND_S = 2e-4


@dataclass(frozen=True, slots=True)
class Prices:
    """Median seconds of a verdict by (draft tokens, plain steps), of a draft by tokens asked for.

    A draft at hand, run ahead for or copied, costs nothing.
    """

    verdicts: Mapping[tuple[int, int], float]
    drafts: Mapping[int, float]

    @classmethod
    def of(cls, runs: Iterable[Decoded]) -> Prices:
        """Return the prices that runs tell; the first round of each read the prompt, too."""
        verdicts: dict[tuple[int, int], list[float]] = defaultdict(list)
        drafts: dict[int, list[float]] = defaultdict(list)
        for run in runs:
            for spent in run.rounds[1:]:
                verdicts[_kind(spent)].append(spent.verifying_s)
                if spent.waiting_s > _AT_HAND_S:
                    drafts[spent.asked].append(spent.waiting_s)
        return cls(
            {kind: median(found) for kind, found in verdicts.items() if len(found) >= _LEAST},
            {asked: median(found) for asked, found in drafts.items() if len(found) >= _LEAST},
        )

    def seconds(self, run: Decoded) -> float:
        """Return what a run's rounds cost, the reading of its prompt excluded."""
        return sum(map(self._of, run.rounds))

    def _of(self, spent: Spent) -> float:
        rows, steps = _kind(spent)
        kinds = [kind for kind in self.verdicts if (kind[0] == 0) == (rows == 0)]
        # Where its own kind was too rare, the nearest one's price.
        near = min(kinds, key=lambda kind: abs(kind[0] - rows) + abs(kind[1] - steps))
        price = self.verdicts[near]
        if spent.waiting_s > _AT_HAND_S and self.drafts:
            price += self.drafts[min(self.drafts, key=lambda asked: abs(asked - spent.asked))]
        return price


def _kind(spent: Spent) -> tuple[int, int]:
    return spent.drafted, 0 if spent.drafted else spent.tokens
