"""Time of a drafter pass and of each proposal: python -m bench.micro.drafter_forward MODEL"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_compiled, load_engine, load_torch
from drafter_service.models.port import BlockRequest, DiffusionLM
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftBlock, DraftOpen, Propose
from foredraft.types import Base, Proposal, SamplingParams

PREFIX = 300
ROUNDS, REPEATS = 30, 20


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds of one call: the least and the median of many."""

    least: float
    median: float

    def __str__(self) -> str:
        return f"{self.least:7.3f} {self.median:7.3f}"


def spreads(calls: Sequence[Callable[[], object]]) -> list[Spread]:
    """Return the CPU time of each call in this thread; they take turns, the first turns warm up."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(ROUNDS):
        for taken, call in zip(times, calls, strict=True):
            for _ in range(REPEATS):
                begin = time.thread_time()
                call()
                if turn >= ROUNDS // 10:
                    taken.append(1e3 * (time.thread_time() - begin))
    return [Spread(min(taken), sorted(taken)[len(taken) // 2]) for taken in times]


def models(config: DrafterConfig) -> dict[str, DiffusionLM]:
    """Return the drafters that run here: compiled, and on torch's int8 and bf16 operations."""
    torch.set_num_threads(1)
    compiled = load_compiled(config)
    wide = config.model_copy(update={"dtype": "bfloat16"})
    found: dict[str, DiffusionLM] = {"compiled int8": compiled} if compiled else {}
    return found | {"torch int8": load_torch(config), "torch bf16": load_torch(wide)}


def forward(
    drafters: Sequence[DiffusionLM], sessions: int, prefix: int, masks: int
) -> list[Spread]:
    """Time one pass of `sessions` sessions, each with 4 new tokens and `masks` mask slots."""
    for model in drafters:
        for slot in range(sessions):
            model.draft([BlockRequest(slot, 0, range(2, 2 + prefix), 0)])
    batch = [BlockRequest(slot, prefix, [7, 8, 9, 10], masks) for slot in range(sessions)]

    def drafting(model: DiffusionLM) -> Callable[[], object]:
        return lambda: model.draft(batch)

    return spreads([drafting(model) for model in drafters])


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

    return spreads([call])[0]


def main() -> None:
    """Print least and median milliseconds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model", type=Path)
    config = DrafterConfig(model=arguments.parse_args().model)
    print("1 thread; ms of CPU time: least, median")  # noqa: T201
    drafters = models(config)
    for sessions, prefix, masks in (
        (1, 100, 9),
        (1, 100, 16),
        (1, 400, 9),
        (1, 400, 16),
        (4, 300, 9),
        (8, 300, 9),
    ):
        taken = forward(list(drafters.values()), sessions, prefix, masks)
        for name, each in zip(drafters, taken, strict=True):
            rows = f"{sessions} x (4 + {masks:2}) rows after {prefix}"
            print(f"{name:14} pass, {rows} {each}")  # noqa: T201
    for strategy in Proposal:
        for temperature in (0.0, 0.8):
            each = proposal(config, strategy, temperature, 8)
            print(f"{strategy:7} T={temperature}, k=8, {PREFIX} cached {each}")  # noqa: T201


if __name__ == "__main__":
    main()
