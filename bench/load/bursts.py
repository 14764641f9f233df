"""Sessions that begin together and end before the next ones come: python -m bench.load.bursts.

Each turn has prompts of its own, as many as sessions, sent at once and decoded plainly and with
Foredraft, in turn. So nothing is known of a text, and every session's first rounds go by beside the
others' prompts. Prints the seconds of each turn and their quotients.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median

from bench.compare.pairs import load_pair
from bench.compare.rows import median_interval
from bench.compare.workload import AS_CONFIGURED, PLAIN
from bench.load.run import LoadPlan, traffic_of
from bench.load.traffic import Traffic, Turn, connect
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


def ratio_line(plain: Sequence[Turn], foredraft: Sequence[Turn]) -> str:
    """Return the medians of the turns' speeds, and of Foredraft's against plain decoding."""
    ratios = [ours.speed / theirs.speed for ours, theirs in zip(foredraft, plain, strict=True)]
    low, high = median_interval(ratios)
    same = sum(
        ours.tokens == theirs.tokens
        for one, other in zip(foredraft, plain, strict=True)
        for ours, theirs in zip(one.answers, other.answers, strict=True)
    )
    return (
        f"plain {median(turn.speed for turn in plain):.0f} tokens/s, "
        f"Foredraft {median(turn.speed for turn in foredraft):.0f}: "
        f"{median(ratios):.2f}x ({low:.2f} to {high:.2f}), {same} identical"
    )


async def measure(asked: argparse.Namespace) -> None:
    """Print each burst's seconds both ways, then their medians."""
    pair, _ = load_pair(None, asked.config, quick=False)
    plan = LoadPlan(least_requests=asked.sessions * (1 + asked.turns))
    plain: list[Turn] = []
    foredraft: list[Turn] = []
    ways = [(PLAIN, plain), (AS_CONFIGURED, foredraft)]
    with running(pair.file) as cluster:
        async with connect() as http:
            traffic = traffic_of(pair, plan, asked.sessions, asked.temperature)
            # The first one connects.
            for burst in islice(bursts(traffic, asked.max_tokens), 1 + asked.turns):
                ways.reverse()
                for mode, found in ways:
                    found.append(await burst.turn(http, cluster.url, mode))
                took = f"plain {plain[-1].seconds:.1f} s, Foredraft {foredraft[-1].seconds:.1f} s"
                print(took, flush=True)  # noqa: T201
    print(ratio_line(plain[1:], foredraft[1:]))  # noqa: T201


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    asyncio.run(measure(parser.parse_args(args)))


if __name__ == "__main__":
    main(sys.argv[1:])
