"""Passes of a few shapes, each recorded once and replayed: a pass of few rows would else be bound
by the time it takes to launch its kernels, not by that of reading the weights.

A recorded pass reads its tokens, positions and plan from arrays at fixed addresses and writes its
logits to another, so nothing in it may depend on a value that the host knows. Larger passes run as
they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from verifier_service.models.attention.flex import FlexAttention, FlexPlan
from verifier_service.models.attention.flex_plan import MOST_TILES, PassShape, shape_of, shapes
from verifier_service.models.device_arrays import DeviceArrays, Field
from verifier_service.models.paged import Flat
from verifier_service.models.transformers_forward import TransformersForward, on_host, positions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# From here on a pass is bound by its arithmetic, not by its launches.
MOST_ROWS = 640

Work = Callable[[], None]

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """A way to do the same work on the same memory again and again."""

    def record(self, work: Work) -> Work:
        """Return what repeats the work; raise RuntimeError where that cannot be had."""


class CallAgain:
    """Calls the work itself: for CPUs."""

    def record(self, work: Work) -> Work:
        return work


class CudaGraphs:
    """Records CUDA graphs, which share the memory of what lies between their kernels."""

    def __init__(self) -> None:
        self._memory = torch.cuda.graph_pool_handle()

    def record(self, work: Work) -> Work:
        # What libraries and compilers prepare at a first call must not be recorded, and must have
        # been done on another stream than the default one.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            work()
        replay: Work = graph.replay
        return replay


class _Recorded(NamedTuple):
    """A recorded pass: what it reads, and what repeats it."""

    inputs: DeviceArrays
    plan: FlexPlan
    replay: Work


class GraphedForward:
    """A Forward that replays passes of up to MOST_ROWS rows and runs others as they are.

    Should a pass not be recorded, all of them run as they are from then on.
    """

    def __init__(
        self,
        forward: TransformersForward,
        attention: FlexAttention,
        recorder: Recorder,
        *,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        self._forward = forward
        self._attention = attention
        self._recorder: Recorder | None = recorder
        self._device = device
        self._recorded: dict[PassShape, _Recorded] = {}
        # One for all shapes: a pass is looked at before the next one runs.
        self._logits = torch.empty(MOST_ROWS, vocabulary, dtype=torch.float32, device=device)

    @torch.inference_mode()
    def __call__(self, flat: Flat) -> npt.NDArray[np.float32]:
        return on_host(self.logits(flat))

    @torch.inference_mode()
    def logits(self, flat: Flat) -> torch.Tensor:
        """Return the wanted rows' logits on the device, until the next pass: float32."""
        recorded = self._find(flat)
        if recorded is None:
            return self._forward.logits(flat)
        self._fill(recorded, flat)
        recorded.replay()
        return self._logits[: len(flat.wanted)]

    @torch.inference_mode()
    def replays(self, flat: Flat) -> bool:
        """Return whether a pass is replayed, recorded now if it has to be."""
        return self._find(flat) is not None

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return a pass of every shape that is recorded, and those that the forward wants."""
        # So many rows may be filled up to twice as many.
        recorded = [batch for _, batch in shapes(min(2 * rows, MOST_ROWS))]
        return [*recorded, *self._forward.batches(rows)]

    def _find(self, flat: Flat) -> _Recorded | None:
        """Return the recorded pass that a batch fits, None if it runs as it is."""
        shape = shape_of([rows.rows for rows in flat.batch])
        if shape.rows > MOST_ROWS or shape.tiles > MOST_TILES:
            return None
        return self._recorded.get(shape) or self._record(shape, flat)

    def _fill(self, recorded: _Recorded, flat: Flat) -> None:
        host = recorded.inputs.host
        recorded.inputs.clear()
        host["tokens"][0, : len(flat.tokens)] = flat.tokens
        host["places"][0, : len(flat.tokens)] = positions(flat.batch)
        host["wanted"][: len(flat.wanted)] = flat.wanted
        recorded.inputs.send()
        self._attention.fill(recorded.plan, flat.batch)

    def _record(self, shape: PassShape, flat: Flat) -> _Recorded | None:
        """Return the recorded pass of a shape, its arrays filled with a batch that has it."""
        if self._recorder is None:
            return None
        row, wide = (1, shape.rows), True
        inputs = DeviceArrays(
            {
                "tokens": Field(row, wide),
                "places": Field(row, wide),
                "wanted": Field((shape.rows,), wide),
            },
            self._device,
        )
        plan = self._attention.reserve(shape, flat.batch[0].kv)
        self._fill(_Recorded(inputs, plan, lambda: None), flat)
        read = inputs.device

        def work() -> None:
            ran = self._forward.compute(read["tokens"], read["places"], read["wanted"], plan)
            self._logits[: shape.rows].copy_(ran.logits[0])

        try:
            replay = self._recorder.record(work)
        except RuntimeError as error:
            log.warning("no CUDA graphs, passes are slower: recording one failed: %s", error)
            self._recorder = None
            self._recorded.clear()
            return None
        self._recorded[shape] = _Recorded(inputs, plan, replay)
        return self._recorded[shape]
