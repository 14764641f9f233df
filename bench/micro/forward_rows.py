"""Time of one verifier forward pass by rows: python -m bench.micro.forward_rows.

They take turns of several calls, as do the parts of the compiled one: the call into C, and the
matrix products in it alone, on weights of the same shapes.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from foredraft_kernels.loader import Isa, choose_isa, load_kernels
from foredraft_kernels.memory import Arena
from foredraft_kernels.structs import VerifierLinear
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.checkpoint import load_config
from verifier_service.models.compiled.weights import pack
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc

ROWS = (1, 2, 5, 9, 16, 24, 32, 64)
ROUNDS, REPEATS = 30, 8


class Timed:
    """A forward's call into C, and how long the last one took."""

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call
        self.ms = 0.0

    def __call__(self, *args: Any) -> int:
        started = time.perf_counter()
        failed = self._call(*args)
        self.ms = 1e3 * (time.perf_counter() - started)
        return failed


class Products:
    """All matrix products of a model, one after the other."""

    def __init__(self, config: Any, isa: Isa, threads: int) -> None:
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        hidden, inner = config.hidden_size, config.intermediate_size
        mixed = heads * config.head_dim
        qkv = mixed + 2 * kv_heads * config.head_dim
        layer = [(qkv, hidden), (hidden, mixed), (2 * inner, hidden), (hidden, inner)]
        shapes = [*layer * config.num_hidden_layers, (config.vocab_size, hidden)]
        self._arena = Arena(2 * sum(n * k for n, k in shapes) + (1 << 20))
        self._linears: list[VerifierLinear] = [
            pack(self._arena, isa, torch.randn(shape).bfloat16()) for shape in shapes
        ]
        self._x = torch.randn(max(ROWS) * max(hidden, mixed, inner)).bfloat16()
        self._y = np.empty(max(ROWS) * max(n + 31 for n, _ in shapes), np.float32)
        self._multiply = getattr(load_kernels(), f"fd_linear_{isa}")
        self._threads = threads

    def __call__(self, rows: int) -> None:
        for linear in self._linears:
            at = ctypes.addressof(linear)
            x, y = self._x.data_ptr(), self._y.ctypes.data
            self._multiply(at, x, rows, y, self._threads)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    """Print least and median milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/embedded/target"))
    parser.add_argument("--prefix", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    isa = choose_isa(load_kernels(), "bf16", args.isa)
    assert isa is not None, "no compiled forward runs here"
    compiled, generic = (
        load_target(VerifierConfig(model=args.model, threads=args.threads, forward=way, isa=isa))
        for way in ("auto", "transformers")
    )
    forward: Any = compiled.passes
    timed = forward._run = Timed(forward._run)
    products = Products(load_config(args.model), isa, args.threads)
    vocab = compiled.info.vocab_size
    text = np.random.default_rng(0).integers(0, vocab, args.prefix + max(ROWS)).tolist()
    tables = {id(model): alloc(model, len(text)) for model in (compiled, generic)}
    for model in (compiled, generic):
        model.forward([Segment(tables[id(model)], 0, text[: args.prefix], 0)])

    def verify(model: PagedModel, rows: int) -> Callable[[], object]:
        tokens = text[args.prefix : args.prefix + rows]
        segments = [Segment(tables[id(model)], args.prefix, tokens, rows)]
        return lambda: model.forward(segments)

    def multiply(rows: int) -> Callable[[], object]:
        return lambda: products(rows)

    names = ("transformers", "compiled", "in C", "products")
    sys.stdout.write(f"ms: least median; {isa}, {args.threads} threads, {args.prefix} before\n")
    sys.stdout.write(f"{'rows':>5}" + "".join(f"{name:>16}" for name in names) + "\n")
    for rows in ROWS:
        taken: list[list[float]] = [[] for _ in names]
        for _ in range(ROUNDS):
            taken[0] += [milliseconds(verify(generic, rows)) for _ in range(REPEATS)]
            for _ in range(REPEATS):
                taken[1].append(milliseconds(verify(compiled, rows)))
                taken[2].append(timed.ms)
            taken[3] += [milliseconds(multiply(rows)) for _ in range(REPEATS)]
        cells = "".join(f"{min(t):>8.2f}{median(t):>8.2f}" for t in taken)
        sys.stdout.write(f"{rows:>5}{cells}\n")


if __name__ == "__main__":
    main()
