"""Directed draft graphs: which tokens to fill ahead, by ranks that hold for every block.

Spiffy (Agrawal et al., 2026), section 4.4. A node is a formula, a set of candidates c_ij; with the
last distribution at hand it becomes a draft, the block's state with these tokens filled in. The
paper's edges (Eq. 4-6) all lead from a formula to one that holds it, so nodes alone make the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from foredraft.denoising import Static, Unmasking


class RankedBy(StrEnum):
    """What candidates are ranked by above temperature 0.

    noise takes the noise of the step that fills a candidate, so that rank 1 is what the target will
    draw if its distribution stays; greedy takes the probability alone, as the paper does.
    """

    NOISE = "noise"
    GREEDY = "greedy"


class Candidate(NamedTuple):
    """c_ij: a masked slot by its rank i (Eq. 10), its token by rank j (Eq. 11), both from 1.

    `after` is how many tokens of its formula are filled in earlier steps. Both ranks are of its own
    step: with that step's noise, and among the slots that the earlier ones leave masked.
    """

    position: int
    vocabulary: int
    after: int = 0


Formula = frozenset[Candidate]


def by_step(formula: Formula) -> tuple[Candidate, ...]:
    """Return a formula's candidates in the order of their steps."""
    return tuple(sorted(formula, key=lambda each: (each.after, each)))


@dataclass(frozen=True, slots=True)
class Node:
    """A formula, the least number of steps that filled it (its level, from 1), and how often."""

    formula: Formula
    level: int
    count: int


def leads_to(earlier: Formula, later: Formula, unmasking: Unmasking) -> bool:
    """Return whether one step can lead from a draft to another (Eq. 5 and 6).

    Eq. 5 asks for a step's number of tokens, which dynamic unmasking does not have: any then.
    """
    if not earlier < later:
        return False
    if isinstance(unmasking, Static):
        return len(later) - len(earlier) == unmasking.per_step
    return True


@dataclass(frozen=True)
class DraftGraph:
    """Nodes in ascending order of level, what ranked the candidates that they are made of, and how
    many anchors they were counted over.
    """

    nodes: tuple[Node, ...]
    ranked_by: RankedBy = RankedBy.NOISE
    anchors: int = 1

    @cached_property
    def log_frequencies(self) -> tuple[float, ...]:
        """The logarithm of each node's share of the anchors, from which its formula was filled."""
        return tuple(math.log(node.count / self.anchors) for node in self.nodes)

    @cached_property
    def deepest(self) -> int:
        """The highest rank of a token that a candidate names."""
        return max((each.vocabulary for node in self.nodes for each in node.formula), default=1)

    def is_reached(self, node: int, reached: Iterable[Formula], unmasking: Unmasking) -> bool:
        """Return whether one step can lead to a node from one of the formulas."""
        formula = self.nodes[node].formula
        return any(leads_to(earlier, formula, unmasking) for earlier in reached)
