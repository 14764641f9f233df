"""Which nodes a draft graph is made of, from texts that were decoded: Spiffy's Alg. 2.

From every state that a step led to, its anchor, the tokens that the next 1 to `lookahead` steps
fill make a formula each, ranked by the distribution that the anchor's step used. How long the
lookahead is, the paper does not say. The three predecessors that it keeps an edge from are subsets
of their node, so the edges of Alg. 2 are those that `DraftGraph` has anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from math import comb

from denoiser_service.core.graph import DraftGraph, Formula, Node, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.ranks import Anchor, Ranks
from denoiser_service.core.text import Block

LOOKAHEAD = 5
NODES_PER_LEVEL = 3
"""Of each number of steps, the formulas that are kept before the graph is chosen."""
ROOT_LEVELS = 2
"""Levels whose nodes need no parent (Eq. 24)."""
_MOST_SETS = 1_000_000


class Counts:
    """How often each formula was filled in so many steps."""

    def __init__(self, ranked_by: RankedBy, lookahead: int = LOOKAHEAD) -> None:
        self._ranked_by = ranked_by
        self._levels: list[Counter[Formula]] = [Counter() for _ in range(lookahead)]
        self._anchors = 0

    def add(self, block: Block, rule: Rule) -> None:
        """Count the formulas of every anchor of a block that the rule denoised (Alg. 2, part 1)."""
        states = block.states
        for step, logits in enumerate(block.logits, start=1):
            if step == len(states) - 1:
                return
            anchor = Anchor.of(states[step], logits, block.start)
            self._anchors += 1
            ranks = Ranks(anchor, rule, self._ranked_by)
            ahead = states[step : step + len(self._levels) + 1]
            for level, formula in enumerate(_formulas(ranks, ahead)):
                self._levels[level][formula] += 1

    def nodes(self, per_level: int = NODES_PER_LEVEL) -> tuple[Node, ...]:
        """Return each level's commonest formulas (Alg. 2, part 2), in ascending order of level.

        One that is common at several levels is a single node, of the lowest, with all its counts.
        Equal counts go by the formula.
        """
        found: dict[Formula, Node] = {}
        for level, counts in enumerate(self._levels, start=1):
            ordered = sorted(counts, key=lambda each: (-counts[each], sorted(each)))
            for formula in ordered[:per_level]:
                node = found.get(formula, Node(formula, level, 0))
                found[formula] = Node(formula, node.level, node.count + counts[formula])
        return tuple(found.values())

    def graph(self, size: int, per_level: int = NODES_PER_LEVEL) -> DraftGraph:
        """Return the graph of `size` nodes (D), or fewer, with the largest sum of counts."""
        return DraftGraph(choose(self.nodes(per_level), size), self._ranked_by, self._anchors)


def _formulas(ranks: Ranks, states: Sequence[tuple[int, ...]]) -> Iterable[Formula]:
    """Yield what is filled between the first state, the anchor, and each later one."""
    formula: Formula = frozenset()
    for earlier, later in pairwise(states):
        before = [slot for slot, token in enumerate(earlier) if token != states[0][slot]]
        formula |= {
            ranks.candidate(slot, token, before)
            for slot, token in enumerate(later)
            if token != earlier[slot]
        }
        yield formula


def is_connected(nodes: Sequence[Node]) -> bool:
    """Return whether each node is of a root level or has a parent among the others (Eq. 24, 25)."""
    return all(
        node.level <= ROOT_LEVELS or any(other.formula < node.formula for other in nodes)
        for node in nodes
    )


def choose(nodes: Sequence[Node], size: int) -> tuple[Node, ...]:
    """Return the connected set of `size` nodes with the largest sum of counts (Eq. 26, 27).

    By trying all sets; of equal sums, the first in the nodes' order. Where no set of the size is
    connected, the largest that is. Raise ValueError for more sets than can be tried.
    """
    for wanted in range(min(size, len(nodes)), 0, -1):
        if comb(len(nodes), wanted) > _MOST_SETS:
            raise ValueError(f"size: {wanted} of {len(nodes)} nodes are too many sets to try")
        connected = [each for each in combinations(nodes, wanted) if is_connected(each)]
        if connected:
            return max(connected, key=lambda each: sum(node.count for node in each))
    return ()
