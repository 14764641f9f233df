"""What the cluster costs: python -m bench.overhead.run.

The same configuration is decoded through a local cluster over HTTP, by Serve's proxy and by the
ingress's own port, and by the same engines in one process, in turn, so that whatever else the
machine does meets all. While one side works the others' engines sleep. Prints medians over turns of
the cluster's speed against the process's, with their intervals, and the CPU milliseconds per token
of each of the cluster's parts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from bench.compare.pairs import Pair, load_pair
from bench.compare.workload import AS_CONFIGURED, PLAIN, Mode, dlm
from bench.load.points import compare
from bench.load.run import LoadPlan, traffic_of
from bench.load.traffic import Traffic, Turn, connect
from bench.overhead.direct import reached_both_ways
from bench.overhead.sides import Cluster, Process, Side
from deployments.config import EMBEDDED_FILE
from deployments.in_process import engines
from deployments.serve.cluster import running

Speeds = Mapping[tuple[str, str], Sequence[Turn]]


async def alternate(
    sides: Mapping[str, Side], traffic: Traffic, modes: Sequence[Mode], turns: int
) -> Speeds:
    """Return the turns by side and mode; who goes first alternates, too."""
    found: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    order = [(mode, side) for mode in modes for side in sides]
    for turn in range(turns + 1):
        for mode, side in order if turn % 2 == 0 else order[::-1]:
            done = await sides[side].turn(traffic, mode)
            # The first turn fills caches, and controllers learn.
            if turn:
                found[mode.name, side].append(done)
    return found


def line(mode: str, side: str, found: Speeds) -> str:
    """Return one line of the table: a side against the process."""
    ours, theirs = found[mode, side], found[mode, "process"]
    compared = compare(ours, theirs)
    return (
        f"{mode:14} {side:6} {median(t.speed for t in ours):6.0f} tokens/s, "
        f"process {median(t.speed for t in theirs):6.0f}, "
        f"against it {compared.ratio:.3f} ({compared.low:.3f} to {compared.high:.3f}), "
        f"{compared.identical:.0%} identical"
    )


def cpu_line(mode: str, side: str, spent: Mapping[str, float]) -> str:
    """Return the CPU time of each part."""
    tokens = spent["tokens"]
    ordered = sorted(spent.items(), key=lambda each: -each[1])
    parts = [(name, seconds) for name, seconds in ordered if name != "tokens" and seconds > 0]
    shown = ", ".join(f"{name} {1e3 * seconds / tokens:.2f}" for name, seconds in parts)
    return f"{mode:14} {side:6} CPU ms a token: {shown}"


async def measure(pair: Pair, args: argparse.Namespace) -> None:
    """Print a table."""
    config = pair.file.application.args
    with running(reached_both_ways(pair.file)) as cluster:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(connect())
            others: dict[str, Side] = {}
            if not args.cluster_only:
                loaded = await stack.enter_async_context(engines(config))
                others["process"] = Process(loaded, config.orchestrator)
            for temperature in args.temperatures:
                for sessions in args.sessions:
                    through = {
                        "proxy": Cluster(http, cluster.url),
                        "direct": Cluster(http, cluster.direct_url),
                    }
                    plan = LoadPlan(max_tokens=args.max_tokens, least_requests=args.requests)
                    traffic = traffic_of(pair, plan, sessions, temperature)
                    drafted = dlm("tree", args.k) if args.k else AS_CONFIGURED
                    modes = (PLAIN, drafted) if sessions == 1 or args.configured else (PLAIN,)
                    sides: dict[str, Side] = {**through, **others}
                    found = await alternate(sides, traffic, modes, args.turns)
                    print(f"temperature {temperature:g}, {sessions} at once")  # noqa: T201
                    for mode in modes:
                        for name, side in through.items():
                            if others:
                                print("  " + line(mode.name, name, found))  # noqa: T201
                            print("  " + cpu_line(mode.name, name, side.cpu[mode.name]))  # noqa: T201
                    sys.stdout.flush()


def main() -> int:
    """Parse the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    arguments.add_argument("--turns", type=int, default=15)
    arguments.add_argument("--requests", type=int, default=2, help="of a turn, at one session")
    arguments.add_argument("--cluster-only", action="store_true", help="CPU times alone")
    arguments.add_argument("--k", type=int, help="a fixed draft length, in place of the controller")
    arguments.add_argument(
        "--configured", action="store_true", help="drafts from two sessions on, too"
    )
    arguments.add_argument("--max-tokens", type=int, default=64)
    arguments.add_argument("--sessions", type=int, nargs="+", default=[1, 4, 16])
    arguments.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    args = arguments.parse_args()
    pair, _ = load_pair(None, args.config, quick=True)
    asyncio.run(measure(pair, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
