"""Sessions that begin together and end before the next ones come: python -m bench.load.bursts.

Each turn has prompts of its own, as many as sessions, sent at once and decoded plainly and with
Foredraft, in turn. So nothing is known of a text, and every session's first rounds go by beside the
others' prompts. Prints the table of `foredraft bench load`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bench.compare.pairs import load_pair
from bench.load.points import as_markdown, point
from bench.load.run import LoadPlan, alternate, traffic_of
from bench.load.traffic import Traffic, connect
from deployments.config import EMBEDDED_FILE
from deployments.serve.cluster import running


def bursts(traffic: Traffic, max_tokens: int) -> Iterator[Traffic]:
    """Yield the bursts that a turn's requests make, each client with one, of one length."""
    size = traffic.clients
    for first in range(0, len(traffic.prompts) - size + 1, size):
        part = slice(first, first + size)
        yield replace(
            traffic,
            prompts=traffic.prompts[part],
            samplings=traffic.samplings[part],
            max_tokens=[max_tokens] * size,
        )


async def measure(asked: argparse.Namespace) -> None:
    """Print a row for each temperature."""
    pair, _ = load_pair(None, asked.config, quick=False)
    plan = LoadPlan(least_requests=asked.sessions * (1 + asked.turns))
    points = []
    with running(pair.file) as cluster:
        async with connect() as http:
            for temperature in asked.temperatures:
                traffic = traffic_of(pair, plan, asked.sessions, temperature)
                turns = islice(bursts(traffic, asked.max_tokens), 1 + asked.turns)
                plain, foredraft = await alternate(http, cluster.url, turns)
                # The first one connects.
                points.append(
                    point(pair.name, asked.sessions, temperature, plain[1:], foredraft[1:])
                )
    print(as_markdown(points))  # noqa: T201


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    asyncio.run(measure(parser.parse_args(args)))


if __name__ == "__main__":
    main(sys.argv[1:])
