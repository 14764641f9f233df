"""Times the attention backends: python -m bench.micro.attention [--keys N] [--threads N]."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from foredraft_kernels.loader import load_kernels
from verifier_service.models.attention.reference import Attention, KvShape, MatmulAttention, Rows
from verifier_service.models.compiled.attention import NativeAttention

_ROWS = (1, 2, 9, 17, 64)
_REPEATS = 300
_BLOCK = 64


def microseconds(call: Callable[[], object]) -> float:
    """Return the least wall time of a call over many."""
    best = float("inf")
    for _ in range(_REPEATS):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return 1e6 * best


def measure(backend: Attention[Any], shape: KvShape, heads: int, rows: int, keys: int) -> float:
    """Return the time of one layer for rows whose last sees `keys` keys."""
    blocks = range(-(-keys // _BLOCK))
    kv = backend.alloc(shape, len(blocks), _BLOCK)
    kv.keys.zero_()
    kv.values.zero_()
    q = torch.randn(rows, heads, shape.head_dim).to(shape.dtype).transpose(0, 1)
    k = torch.randn(rows, shape.kv_heads, shape.head_dim).to(shape.dtype).transpose(0, 1)
    plan = backend.plan([Rows(kv, blocks, keys - rows, 0, rows)], rows)
    return microseconds(lambda: backend.attend(0, q, k, k, plan, shape.head_dim**-0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--kv-heads", type=int, default=6)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    shape = KvShape(1, args.kv_heads, args.head_dim, torch.bfloat16, torch.device("cpu"))
    kernels = load_kernels()
    backends: list[Attention[Any]] = [MatmulAttention()]
    if kernels is not None:
        backends.append(NativeAttention(kernels))
    lines = [
        f"one layer, {args.heads} heads x {args.head_dim}, {args.keys} keys, bf16: us",
        f"{'rows':>6}" + "".join(f"{backend.name:>10}" for backend in backends),
    ]
    for rows in _ROWS:
        times = [measure(backend, shape, args.heads, rows, args.keys) for backend in backends]
        lines.append(f"{rows:>6}" + "".join(f"{us:>10.0f}" for us in times))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
