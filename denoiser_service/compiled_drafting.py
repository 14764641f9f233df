"""The compiled drafting (denoiser/drafts.c): the drafts of core/decode.py, sooner."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from denoiser_service.core.decode import GraphDrafting
from denoiser_service.core.graph import DraftGraph, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.port import Guess, MakeDrafting
from denoiser_service.core.prefixes import prefixes_of
from denoiser_service.core.ranks import Anchor
from foredraft.denoising import Static
from foredraft_kernels.loader import load_kernels
from foredraft_kernels.structs import DraftGraph as GraphStruct
from foredraft_kernels.structs import DraftSettings
from verifier_service.rules.sampling import HEAD_NATS


def best_drafting(graph: DraftGraph) -> MakeDrafting:
    """Return the compiled drafting of a graph where it was built, else the reference."""
    kernels = load_kernels()
    if kernels is None or not graph.nodes:
        return partial(GraphDrafting, graph)
    return partial(NativeDrafting, kernels, PackedGraph(graph))


class PackedGraph:
    """A draft graph and, in the memory that C reads, its prefixes."""

    def __init__(self, graph: DraftGraph) -> None:
        """Raise ValueError for a graph without nodes."""
        if not graph.nodes:
            raise ValueError("graph: it has no nodes")
        self.graph = graph
        every, paths = prefixes_of(graph)
        candidates = [prefix.candidate for prefix in every]
        after = sorted({candidate.after for candidate in candidates})
        longest = max(map(len, paths))
        formulas = [node.formula for node in graph.nodes]
        # The memory lives as long as this object.
        self._numbers: dict[str, array[int] | array[float]] = {
            "shorter": _ints(prefix.shorter for prefix in every),
            "positions": _ints(candidate.position for candidate in candidates),
            "ranks": _ints(candidate.vocabulary for candidate in candidates),
            "steps": _ints(after.index(candidate.after) for candidate in candidates),
            "after": _ints(after),
            "paths": _ints(at for path in paths for at in (*path, *[0] * (longest - len(path)))),
            "lengths": _ints(map(len, paths)),
            "log_frequencies": array("d", graph.log_frequencies),
            "within": array("b", (earlier < later for earlier in formulas for later in formulas)),
        }
        self.struct = GraphStruct(
            num_nodes=len(paths),
            num_prefixes=len(every),
            num_steps=len(after),
            longest=longest,
            deepest=graph.deepest,
            **{name: numbers.buffer_info()[0] for name, numbers in self._numbers.items()},
        )


class NativeDrafting:
    """core.decode.GraphDrafting in one call; near-ties may come in another order."""

    def __init__(self, kernels: ctypes.CDLL, packed: PackedGraph, rule: Rule, budget: int) -> None:
        self._drafts = kernels.fd_drafts
        self._reference = GraphDrafting(packed.graph, rule, budget)
        self._packed, self._graph = packed, ctypes.addressof(packed.struct)
        noisy = packed.graph.ranked_by is RankedBy.NOISE
        self._settings = DraftSettings(
            temperature=rule.temperature if noisy else 0.0,
            head=HEAD_NATS,
            seed=rule.seed,
            per_step=rule.unmasking.per_step if isinstance(rule.unmasking, Static) else 0,
            budget=min(budget, len(packed.graph.nodes)),
        )
        self._costs = array("d", bytes(8 * self._settings.budget))
        self._states = array("q")

    def __call__(self, anchor: Anchor) -> Sequence[Guess]:
        """Return states to evaluate together with the anchor's, the best first."""
        logits, settings = anchor.logits, self._settings
        if logits.dtype != np.float32 or not logits.flags.c_contiguous:
            return self._reference(anchor)
        slots, settings.vocabulary = logits.shape
        settings.most_cost = -math.log(anchor.least) if anchor.least > 0 else math.inf
        if settings.slots != slots:
            settings.slots, self._states = slots, array("q", bytes(8 * slots * settings.budget))
        state = array("q", anchor.state)
        count = self._drafts(
            self._graph,
            ctypes.addressof(settings),
            state.buffer_info()[0],
            logits.ctypes.data,
            anchor.normalisers.ctypes.data,
            anchor.peaks.ctypes.data,
            anchor.start,
            anchor.full,
            self._states.buffer_info()[0],
            self._costs.buffer_info()[0],
        )
        if count < 0:
            raise MemoryError
        drafted = self._states.tolist()
        return [
            Guess(tuple(drafted[at * slots : (at + 1) * slots]), math.exp(-self._costs[at]))
            for at in range(count)
        ]


def _ints(numbers: Iterable[int]) -> array[int]:
    return array("q", numbers)
