"""The prefixes of a draft graph's formulas by step, so that what formulas share is drafted once."""

from __future__ import annotations

from typing import NamedTuple

from denoiser_service.core.graph import Candidate, DraftGraph, by_step

ROOT = -1
"""The prefix without candidates."""


class Prefix(NamedTuple):
    """The beginning of a formula by step: a shorter one, by its index or ROOT, and a candidate."""

    shorter: int
    candidate: Candidate


class Prefixes(NamedTuple):
    """All prefixes, each once and after its shorter one; and of each node the indices of its
    formula's, the shortest first.
    """

    every: tuple[Prefix, ...]
    paths: tuple[tuple[int, ...], ...]


def prefixes_of(graph: DraftGraph) -> Prefixes:
    """Return the prefixes of a graph's formulas."""
    found: dict[Prefix, int] = {}
    paths: list[tuple[int, ...]] = []
    for node in graph.nodes:
        path: list[int] = []
        for candidate in by_step(node.formula):
            prefix = Prefix(path[-1] if path else ROOT, candidate)
            path.append(found.setdefault(prefix, len(found)))
        paths.append(tuple(path))
    return Prefixes(tuple(found), tuple(paths))
