"""Verifying many sessions in one forward, against its floors: python -m bench.micro.verify_batches.

Each session brings its last token and k drafted ones after a prefix of its own; all in one forward
is compared with one forward after another. The floor is the larger of two times, both rates
measured in this run: the forward's operations over the rate of torch's own bf16 matrix product, and
the weights' bytes over the rate at which this machine reads memory.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deployments.config import model_path
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.checkpoint import load_config
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc

_MATRIX = 1024
_BYTES = 256 << 20


@dataclass(frozen=True)
class Case:
    """Sessions, drafted tokens of each, and their prefixes' lengths in tokens."""

    name: str
    k: int
    prefixes: tuple[int, ...]


def cases(seed: int) -> list[Case]:
    """Return one number varied at a time, and prefixes of very different lengths."""
    draw = random.Random(seed)
    found = [Case(f"batch {n}, k 16, prefix 256", 16, (256,) * n) for n in (1, 2, 4, 8, 16)]
    found += [Case(f"batch 16, k {k}, prefix 256", k, (256,) * 16) for k in (0, 4, 8)]
    found += [Case(f"batch 16, k 16, prefix {n}", 16, (n,) * 16) for n in (64, 1024)]
    ragged = tuple(draw.randrange(16, 1024) for _ in range(16))
    return [*found, Case("batch 16, k 16, prefix 16 to 1024", 16, ragged)]


@dataclass(frozen=True)
class Floor:
    """A model's sizes and the machine's two rates."""

    config: Any
    flops_per_s: float
    bytes_per_s: float

    def ms(self, case: Case) -> float:
        """Return the least time of a case's forward."""
        c = self.config
        kv = c.num_key_value_heads * c.head_dim
        mixed = c.num_attention_heads * c.head_dim
        layer = c.hidden_size * (2 * mixed + 2 * kv) + 3 * c.hidden_size * c.intermediate_size
        weights = c.num_hidden_layers * layer + c.vocab_size * c.hidden_size
        rows = 1 + case.k
        seen = sum(rows * prefix + rows * (rows + 1) // 2 for prefix in case.prefixes)
        operations = 2 * weights * rows * len(case.prefixes)
        operations += 4 * mixed * seen * c.num_hidden_layers
        slowest: float = max(operations / self.flops_per_s, 2 * weights / self.bytes_per_s)
        return 1e3 * slowest


def best_s(call: Callable[[], object], repeats: int) -> float:
    """Return the least time of some calls, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def rates() -> tuple[float, float]:
    """Return this machine's bf16 operations and read bytes per second, in one thread."""
    a, b = (torch.randn(_MATRIX, _MATRIX).bfloat16() for _ in range(2))
    block = np.ones(_BYTES // 8)
    flops = 2 * _MATRIX**3 / best_s(lambda: a @ b, 30)
    return flops, _BYTES / best_s(lambda: block.max(), 10)


def rounds(case: Case, tables: Sequence[list[int]]) -> list[Segment]:
    """Return each session's rows."""
    rows = list(range(1, case.k + 2))
    return [
        Segment(table, prefix - 1, rows, len(rows))
        for table, prefix in zip(tables, case.prefixes, strict=True)
    ]


def measure(model: PagedModel, case: Case, repeats: int) -> tuple[list[float], list[float]]:
    """Return times of one forward for all and of one after another, in ms, taking turns."""
    tables = [alloc(model, prefix + case.k + 1) for prefix in case.prefixes]
    for table, prefix in zip(tables, case.prefixes, strict=True):
        model.forward([Segment(table, 0, list(range(1, prefix)), 0)])
    asked = rounds(case, tables)

    def apart() -> None:
        for segment in asked:
            model.forward([segment])

    together, one_by_one = [], []
    for _ in range(repeats):
        together.append(1e3 * best_s(lambda: model.forward(asked), 1))
        one_by_one.append(1e3 * best_s(apart, 1))
    for table in tables:
        model.pool.give(table)
    return together, one_by_one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path(model_path("models/embedded/target")))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load_target(VerifierConfig(model=args.model))
    floor = Floor(load_config(args.model).get_text_config(), *rates())
    lines = [
        f"{floor.flops_per_s / 1e9:.0f} Gflop/s, {floor.bytes_per_s / 1e9:.1f} GB/s, one thread; "
        f"medians of {args.repeats}, ms",
        f"{'':36}{'together':>10}{'apart':>9}{'ratio':>8}{'floor':>8}{'reached':>9}",
    ]
    for case in cases(args.seed):
        together, apart = (statistics.median(t) for t in measure(model, case, args.repeats))
        least = floor.ms(case)
        lines.append(
            f"{case.name:36}{together:>10.2f}{apart:>9.2f}{apart / together:>7.2f}x"
            f"{least:>8.2f}{least / together:>9.0%}"
        )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
