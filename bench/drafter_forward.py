"""Time of one drafter pass and of each proposal strategy: python -m bench.drafter_forward MODEL"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine, load_model
from drafter_service.model.port import BlockRequest
from foredraft.prefix import hash_prefix
from foredraft.types import Base, DraftBlock, DraftOpen, Proposal, Propose, SamplingParams

PREFIX = 300
REPEATS = 300


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds of one call: the least and the median of many."""

    least: float
    median: float

    def __str__(self) -> str:
        return f"{self.least:7.3f} {self.median:7.3f}"


def spread(call: Callable[[], object]) -> Spread:
    """Return the CPU time of a call in this thread; the first calls warm up."""
    times = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        call()
        times.append(1e3 * (time.thread_time() - begin))
    times = sorted(times[REPEATS // 10 :])
    return Spread(times[0], times[len(times) // 2])


def forward(config: DrafterConfig, masks: int, sessions: int) -> Spread:
    """Time one pass of `sessions` sessions, each with 1 new token and `masks` mask slots."""
    torch.set_num_threads(config.threads)
    model = load_model(config)
    for slot in range(sessions):
        model.draft([BlockRequest(slot, 0, range(2, 2 + PREFIX), 0)])
    batch = [BlockRequest(slot, PREFIX, [7], masks) for slot in range(sessions)]
    return spread(lambda: model.draft(batch))


def proposal(config: DrafterConfig, strategy: Proposal, temperature: float, count: int) -> Spread:
    """Time one proposal of the engine: the pass, and the way from its scores to a block."""
    engine = load_engine(config)
    prefix = tuple(range(2, 2 + PREFIX))
    sampling = SamplingParams(temperature=temperature, seed=1)
    handle, _ = engine.open(DraftOpen("bench", prefix, sampling, strategy, 1024))
    ask = Propose(Base("bench", 0, PREFIX, hash_prefix(prefix)), PREFIX, (), count)

    def call() -> None:
        [answer] = engine.propose([(handle, ask)])
        assert isinstance(answer, DraftBlock)

    return spread(call)


def main() -> None:
    """Print least and median milliseconds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--dtypes", nargs="+", default=["int8", "bfloat16"])
    parsed = arguments.parse_args()
    print(f"{PREFIX} cached tokens, 1 thread; ms of CPU time: least, median")  # noqa: T201
    for dtype in parsed.dtypes:
        config = DrafterConfig(model=parsed.model, dtype=dtype)
        for sessions, masks in ((1, 9), (1, 16), (4, 9), (8, 9)):
            taken = forward(config, masks, sessions)
            print(f"{dtype:9} pass, {sessions} x (1 + {masks:2}) rows     {taken}")  # noqa: T201
        for strategy in Proposal:
            for temperature in (0.0, 0.8):
                taken = proposal(config, strategy, temperature, 8)
                print(f"{dtype:9} {strategy:7} T={temperature}, k=8       {taken}")  # noqa: T201


if __name__ == "__main__":
    main()
