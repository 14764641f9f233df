"""Where a drafted round's time goes in a cluster: python -m bench.overhead.round_trip.

One session, one draft length, rounds led by the verifier. Every process notes when a round passes
which point (tracing.py); rounds that pass the same points in the same order are put together, and
the medians of the steps between two points are printed, those of the most frequent order first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.compare.pairs import load_pair
from bench.compare.workload import dlm
from bench.load.run import LoadPlan, traffic_of
from bench.load.traffic import Traffic, connect
from bench.overhead.tracing import FOLDER, read
from deployments.config import EMBEDDED_FILE
from deployments.serve.cluster import running
from deployments.serve.environment import prepare_environment

Point = tuple[int, str]
# A round begins where the one before was decided.
_FIRST = "verifier: verdict on loop"
# What is not on the way of the next round, and may come anywhere.
_BESIDE = ("ingress: ", "verifier: report", "verifier: answer")


def rounds(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield each round's points, with the first one of the next round at its end."""
    current: list[Point] = []
    for point in points:
        if point[1] == _FIRST and current:
            yield [*current, point]
            current = []
        if point[1] == _FIRST or current:
            current.append(point)


def steps(found: Sequence[list[Point]], beside: bool) -> list[str]:
    """Return the lines of the most frequent orders of points."""
    orders: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
    for points in found:
        kept = [p for p in points if beside or not p[1].startswith(_BESIDE)]
        orders[tuple(name for _, name in kept)].append([at for at, _ in kept])
    lines = []
    for names, times in sorted(orders.items(), key=lambda each: -len(each[1]))[:2]:
        whole = median(each[-1] - each[0] for each in times) / 1e6
        lines.append(f"{len(times)} of {len(found)} rounds, {whole:.2f} ms each (median)")
        for at in range(1, len(names)):
            taken = sorted((each[at] - each[at - 1]) / 1e6 for each in times)
            low, high = taken[len(taken) // 4], taken[3 * len(taken) // 4]
            lines.append(f"  {median(taken):7.3f} ({low:.3f} to {high:.3f}) -> {names[at]}")
    return lines


def lag(points: Sequence[Point], first: str, then: str) -> str:
    """Return how long after each point of one kind the next one of another kind comes."""
    taken, began = [], None
    for at, name in points:
        if name == first and began is None:
            began = at
        elif name == then and began is not None:
            taken.append((at - began) / 1e6)
            began = None
    return f"  {median(taken):7.3f} {first} -> {then}" if taken else f"  none: {first}"


async def play(url: str, traffic: Traffic, k: int, turns: int) -> None:
    """Decode the traffic's prompts so many times."""
    async with connect() as http:
        for _ in range(turns):
            await traffic.turn(http, url, dlm("tree", k))
        # For the processes to write.
        await asyncio.sleep(3)


def main() -> int:
    """Parse the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    arguments.add_argument("--turns", type=int, default=6)
    arguments.add_argument("--requests", type=int, default=6)
    arguments.add_argument("--max-tokens", type=int, default=64)
    arguments.add_argument("--temperature", type=float, default=0.8)
    arguments.add_argument("--k", type=int, default=12)
    args = arguments.parse_args()
    pair, _ = load_pair(None, args.config, quick=True)
    plan = LoadPlan(max_tokens=args.max_tokens, least_requests=args.requests)
    traffic = traffic_of(pair, plan, 1, args.temperature)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        prepare_environment()
        import ray

        environment = {
            "worker_process_setup_hook": "bench.overhead.tracing.install",
            "env_vars": {FOLDER: folder},
        }
        ray.init(include_dashboard=False, log_to_driver=False, runtime_env=environment)
        try:
            with running(pair.file) as cluster:
                asyncio.run(play(cluster.url, traffic, args.k, args.turns))
        finally:
            ray.shutdown()
        points = read(Path(folder))
    found = list(rounds(points))
    print("\n".join(steps(found, beside=False)))  # noqa: T201
    print("after the verdict, beside the next round:")  # noqa: T201
    for first, then in (
        (_FIRST, "verifier: report begins"),
        ("verifier: report begins", "verifier: report sent"),
        ("verifier: report begins", "ingress: led round read"),
        ("ingress: led round read", "ingress: accounting begins"),
        ("ingress: accounting begins", "ingress: accounted"),
        ("ingress: accounted", "ingress: event begins"),
        ("ingress: event begins", "ingress: event encoded"),
    ):
        print(lag(points, first, then))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
