"""Several programs over one model, each with its own text: one forward pass for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from verifier_service.models.port import Segment, TargetModel

if TYPE_CHECKING:
    from bench.assd.port import Logits
    from foredraft.types import ModelInfo
    from verifier_service.kv.block_pool import BlockPool

Result = TypeVar("Result")
Program = Callable[[TargetModel], Result]


def in_step(model: TargetModel, programs: Sequence[Program[Result]], width: int) -> list[Result]:
    """Return the programs' results; `width` at a time share the passes of the model.

    A row does not depend on what else is in its pass, so the results are those of one by one.
    """
    width = min(width, len(programs))
    shared = SharedPasses(model, width)
    left = iter(enumerate(programs))
    found: dict[int, Result] = {}
    lock = Lock()

    def work() -> None:
        try:
            while True:
                with lock:
                    number, program = next(left, (-1, None))
                if program is None:
                    return
                found[number] = program(shared)
        finally:
            shared.leave()

    with ThreadPoolExecutor(width) as pool:
        for each in [pool.submit(work) for _ in range(width)]:
            each.result()
    return [found[number] for number in range(len(programs))]


class SharedPasses:
    """A model for several threads, whose pass begins when each of them waits for one."""

    def __init__(self, model: TargetModel, members: int) -> None:
        self._model = model
        self._members = members
        self._lock = Lock()
        self._waiting: list[tuple[Sequence[Segment], Future[Logits]]] = []

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    @property
    def pool(self) -> BlockPool:
        return self._model.pool

    @property
    def block_tokens(self) -> int:
        return self._model.block_tokens

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        self._model.keep(blocks, start, rows)

    def forward(self, segments: Sequence[Segment]) -> Logits:
        """Return the segments' rows, of a pass that has the other threads' segments, too."""
        mine: Future[Logits] = Future()
        with self._lock:
            self._waiting.append((segments, mine))
            self._pass_if_all()
        return mine.result()

    def leave(self) -> None:
        """Count one thread less."""
        with self._lock:
            self._members -= 1
            self._pass_if_all()

    def _pass_if_all(self) -> None:
        if not self._waiting or len(self._waiting) < self._members:
            return
        waiting, self._waiting = self._waiting, []
        try:
            logits = self._model.forward([each for segments, _ in waiting for each in segments])
        except Exception as error:  # noqa: BLE001 - it is raised in each thread that waits
            for _, future in waiting:
                future.set_exception(error)
            return
        start = 0
        for segments, future in waiting:
            end = start + sum(each.wanted for each in segments)
            future.set_result(logits[start:end])
            start = end
