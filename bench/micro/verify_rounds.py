"""Times a verification round by its rows, path and tree: bench.micro.verify_rounds.

A round is one forward over the last committed token and the draft; a tree's also moves the KV of
the branch that is kept.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

from deployments.config import model_path
from foredraft.decoding.tree import branch
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc

_ROWS = (1, 5, 9, 16, 24, 32)
_KINDS = ("path", "tree")


def binary_tree(nodes: int) -> tuple[int, ...]:
    """Return the parents of a tree in which each node, and the prefix, has two children."""
    return tuple(i // 2 - 1 for i in range(nodes))


def round_ms(model: PagedModel, blocks: list[int], prefix: int, rows: int, kind: str) -> float:
    """Return the wall time of one round after prefix tokens, in ms; of a tree, the last is kept."""
    nodes = rows - 1
    parents = binary_tree(nodes) if kind == "tree" else ()
    started = time.perf_counter()
    model.forward([Segment(blocks, prefix - 1, list(range(1, 1 + rows)), rows, parents)])
    if parents:
        model.keep(blocks, prefix, branch(parents, nodes - 1))
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path(model_path("models/embedded/target")))
    parser.add_argument("--prefix", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load_target(VerifierConfig(model=args.model, threads=args.threads))
    blocks = alloc(model, args.prefix + max(_ROWS))
    model.forward([Segment(blocks, 0, list(range(args.prefix)), 1)])
    sides = [(rows, kind) for rows in _ROWS for kind in _KINDS]
    times: dict[tuple[int, str], list[float]] = {side: [] for side in sides}
    # The sides take turns, so that what else the machine does meets all of them.
    for _ in range(args.repeats):
        for rows, kind in sides:
            times[rows, kind].append(round_ms(model, blocks, args.prefix, rows, kind))
    columns = [f"{kind} {what}" for kind in _KINDS for what in ("min", "median")]
    lines = [
        f"prefix {args.prefix}, {args.threads} thread(s), {args.repeats} rounds each: ms",
        f"{'rows':>6}" + "".join(f"{column:>13}" for column in columns),
    ]
    for rows in _ROWS:
        found = [times[rows, kind] for kind in _KINDS]
        cells = [ms for side in found for ms in (min(side), statistics.median(side))]
        lines.append(f"{rows:>6}" + "".join(f"{ms:>13.2f}" for ms in cells))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
