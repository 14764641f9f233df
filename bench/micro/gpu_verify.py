"""Verification on a GPU: python -m bench.micro.gpu_verify [--shape S] [--out FILE].

A checkpoint of random weights is written in place and loaded as any other. Then passes of sessions
that each bring k+1 rows after a prefix are timed, launched kernel by kernel and replayed as CUDA
graphs, in turns. The floor is the larger of two times, both rates measured in this run: the bytes
of weights and KV over the rate of a large copy, and the operations over that of a bf16 matrix
product. With --shape tiny it runs on a CPU, too, where its times say nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bench.micro.random_checkpoint import SHAPES, read_bytes, write
from bench.micro.verify_rounds import binary_tree
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.cuda_graphs import CallAgain, CudaGraphs, GraphedForward
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc
from verifier_service.models.transformers_forward import TransformersForward

_ROWS = (1, 2, 4, 8, 16, 17, 32, 64)
_BATCHES = (1, 2, 4, 8, 16, 32)
_TREE_ROWS = 17
_PREFILL_ROWS = 512
# The device's copy and matrix product: bytes of the copied array, and the matrix's side.
_SIZES = {"cuda": (2 << 30, 8192), "cpu": (64 << 20, 512)}
# A round of 17 rows, against one row, and against reading the weights.
_MOST_OF_PLAIN, _MOST_OF_FLOOR = 1.15, 1.25


@dataclass(frozen=True)
class Machine:
    """A device and its rates, measured."""

    name: str
    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True)
class Cell:
    """Times of passes of `batch` sessions with `rows` rows each, in ms, and their floors.

    graphs and host are None where the pass is not replayed; host also brings all logits to the
    host.
    """

    kind: str
    rows: int
    batch: int
    eager: float
    graphs: float | None
    host: float | None
    bytes_floor: float
    flops_floor: float

    @property
    def best(self) -> float:
        """The pass's time as it would be served."""
        return self.eager if self.graphs is None else self.graphs


def elapsed(call: Callable[[], object], device: torch.device) -> float:
    """Return the time until the device has done what a call asks of it, in seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def rates(device: torch.device) -> Machine:
    """Return the device's measured rates: the best of several runs."""
    size, side = _SIZES[device.type]
    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    a, b = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))
    copied = min(elapsed(lambda: target.copy_(source), device) for _ in range(20))
    multiplied = min(elapsed(lambda: a @ b, device) for _ in range(20))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return Machine(name, 2 * size / copied, 2 * side**3 / multiplied)


class Bench:
    """A loaded model, launched and replayed, and what its passes cost at least."""

    def __init__(self, folder: Path, device: torch.device, most: int, machine: Machine) -> None:
        config = VerifierConfig(
            model=folder, device=str(device), attention="flex", cuda_graphs="off", kv_tokens=most
        )
        self.model: PagedModel = load_target(config)
        plain: Any = self.model.passes
        self._plain: TransformersForward = plain
        self._graphs = GraphedForward(
            plain,
            plain.attention,
            CudaGraphs() if device.type == "cuda" else CallAgain(),
            vocabulary=self.model.info.vocab_size,
            device=device,
        )
        self._device, self._machine = device, machine
        self._read = read_bytes(folder)

    def cell(
        self, config: Any, tables: Sequence[list[int]], prefix: int, rows: int, kind: str, runs: int
    ) -> Cell:
        """Return the medians of passes of the tables' sessions, the sides taking turns."""
        parents = binary_tree(rows - 1) if kind == "tree" else ()
        tokens = [1 + i % 500 for i in range(rows)]
        flat = self.model.flat(
            [Segment(table, prefix - 1, tokens, rows, parents) for table in tables]
        )
        sides: dict[str, Callable[[], object]] = {"eager": lambda: self._plain.logits(flat)}
        if self._graphs.replays(flat):
            sides["graphs"] = lambda: self._graphs.logits(flat)
            sides["host"] = lambda: self._graphs(flat)
        times: dict[str, list[float]] = {side: [] for side in sides}
        for run in range(-2, runs):
            for side, call in sides.items():
                spent = 1e3 * elapsed(call, self._device)
                if run >= 0:
                    times[side].append(spent)
        medians = {side: statistics.median(found) for side, found in times.items()}
        floors = self._floors(config, len(tables), prefix, rows)
        return Cell(
            kind,
            rows,
            len(tables),
            medians["eager"],
            medians.get("graphs"),
            medians.get("host"),
            *floors,
        )

    def _floors(self, config: Any, batch: int, prefix: int, rows: int) -> tuple[float, float]:
        """Return the least times of a pass, by bytes and by operations, in ms."""
        head = config.hidden_size // config.num_attention_heads
        seen = batch * (prefix - 1 + rows)
        cached = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * head * seen
        mixed = 4 * config.num_hidden_layers * config.hidden_size * rows * seen
        operations = self._read * batch * rows + mixed
        return (
            1e3 * (self._read + cached) / self._machine.bytes_per_s,
            1e3 * operations / self._machine.flops_per_s,
        )


def measure(bench: Bench, shape: str, args: argparse.Namespace) -> list[Cell]:
    """Return all cells: paths of all sizes, and the tree."""
    longest = args.prefix + max(*args.rows, _TREE_ROWS)
    tables = [alloc(bench.model, longest) for _ in range(max(args.batches))]
    text = [1 + i % 500 for i in range(args.prefix - 1)]
    for table in tables:
        for at in range(0, len(text), _PREFILL_ROWS):
            bench.model.forward([Segment(table, at, text[at : at + _PREFILL_ROWS], 0)])
    sizes = [(rows, batch, "path") for batch in args.batches for rows in args.rows]
    return [
        bench.cell(SHAPES[shape], tables[:batch], args.prefix, rows, kind, args.repeats)
        for rows, batch, kind in [*sizes, (_TREE_ROWS, 1, "tree")]
    ]


def targets(cells: Sequence[Cell]) -> list[str]:
    """Return the two ratios of a 17-row round of one session that should not be larger."""
    found = {(cell.kind, cell.rows, cell.batch): cell for cell in cells}
    verify, plain = found.get(("path", 17, 1)), found.get(("path", 1, 1))
    if verify is None or plain is None:
        return []
    ratios = [
        ("one plain step", verify.best / plain.best, _MOST_OF_PLAIN),
        ("bytes over bandwidth", verify.best / verify.bytes_floor, _MOST_OF_FLOOR),
    ]
    return [
        f"verify(17, batch 1) / {against}: {ratio:.2f}x, target {most}x: "
        + ("ok" if ratio <= most else "short")
        for against, ratio, most in ratios
    ]


def table(cells: Sequence[Cell], machine: Machine, heading: str) -> str:
    """Return the Markdown table of the cells."""
    lines = [
        heading,
        "",
        f"{machine.name}: {machine.bytes_per_s / 1e9:.0f} GB/s (copy, read and written), "
        f"{machine.flops_per_s / 1e12:.1f} Tflop/s (bf16 product). Times in ms, medians.",
        "",
        "| rows | batch | eager | graphs | graphs, logits on host | bytes floor | flops floor "
        "| floor reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        replayed = ["-" if ms is None else f"{ms:.2f}" for ms in (cell.graphs, cell.host)]
        floor = max(cell.bytes_floor, cell.flops_floor)
        lines.append(
            f"| {cell.rows}{' (tree)' if cell.kind == 'tree' else ''} | {cell.batch} "
            f"| {cell.eager:.2f} | {' | '.join(replayed)} | {cell.bytes_floor:.2f} "
            f"| {cell.flops_floor:.2f} | {floor / cell.best:.0%} |"
        )
    return "\n".join([*lines, "", *(f"- {line}" for line in targets(cells))]) + "\n"


def numbers(text: str) -> list[int]:
    """Return comma-separated integers."""
    return [int(part) for part in text.split(",")]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-7b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="for the checkpoint; default: a temporary one")
    parser.add_argument("--out", type=Path, help="Markdown; the JSON goes beside it")
    parser.add_argument("--rows", type=numbers, default=list(_ROWS), help="k+1: 1,2,...")
    parser.add_argument("--batches", type=numbers, default=list(_BATCHES))
    parser.add_argument("--prefix", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    longest = args.prefix + max(*args.rows, _TREE_ROWS)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        write(Path(folder), args.shape, device)
        machine = rates(device)
        most = max(1024, max(args.batches) * (longest + 64))
        cells = measure(Bench(Path(folder), device, most, machine), args.shape, args)
    asked = " ".join(sys.argv[1:] if argv is None else argv)
    written = table(cells, machine, f"`python -m bench.micro.gpu_verify {asked}`, {args.shape}")
    sys.stdout.write(written)
    if args.out:
        args.out.write_text(written)
        report = {
            "shape": args.shape,
            "prefix": args.prefix,
            "machine": asdict(machine),
            "cells": [asdict(cell) for cell in cells],
            "targets": targets(cells),
        }
        args.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
