"""Rounds led by the verifier and by the orchestrator: bench.micro.verifier_led_rounds.

One local cluster; every prompt is decoded plainly, with rounds led by the orchestrator, and with
rounds led by the verifier, in turn. Medians over prompts of tokens per second, of the speed against
plain decoding beside it, and of verifier-led rounds against the orchestrator's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from bench.compare.workload import PLAIN, Mode, dlm
from deployments.config import EMBEDDED_FILE, read
from deployments.serve.cluster import running
from foredraft.client import CompletionClient
from foredraft_cli.prompts.held_out import prompts, sampling

TEMPERATURES = (0.0, 0.8)
MAX_TOKENS = 128
BY_VERIFIER = "led by the verifier"


def modes(rounds: int) -> list[Mode]:
    """Return both ways of decoding, with trees alone and after the text's own n-grams."""
    return [
        Mode(f"{drafts}, {name}", dlm(drafts).options | {"verifier_led_rounds": granted})
        for drafts in ("tree", "ngram+tree")
        for name, granted in (("led by the orchestrator", 0), (BY_VERIFIER, rounds))
    ]


async def speeds(
    client: CompletionClient, texts: Sequence[str], temperature: float, ways: Sequence[Mode]
) -> dict[str, list[float]]:
    """Return tokens per second of every prompt, by the way of decoding."""
    found: dict[str, list[float]] = defaultdict(list)
    for index, text in enumerate(texts):
        params = sampling(temperature, index)
        for way in ways:
            answer = await client.complete(text, params, MAX_TOKENS, **way.options)
            found[way.name].append(len(answer.tokens) / answer.seconds)
    return found


def ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over prompts of one speed in terms of the other."""
    return median(one / other for one, other in zip(ones, others, strict=True))


async def run(count: int) -> None:
    """Print a table."""
    file, texts = read(EMBEDDED_FILE), prompts(count)
    ways = [PLAIN, *modes(file.application.args.orchestrator.verifier_led_rounds)]
    with running(file) as cluster:
        async with CompletionClient(cluster.url) as client:
            await speeds(client, texts[:2], 0.0, ways)
            for temperature in TEMPERATURES:
                found = await speeds(client, texts, temperature, ways)
                print(f"temperature {temperature:g}, {count} prompts x {MAX_TOKENS}")  # noqa: T201
                before = found[PLAIN.name]
                for name, speed in found.items():
                    line = f"  {name:36} {median(speed):6.0f} tokens/s"
                    line += f"  {ratio(speed, found[PLAIN.name]):5.2f}x of plain"
                    if name.endswith(BY_VERIFIER):
                        line += f"  {ratio(speed, before):5.2f}x of the orchestrator's"
                    print(line)  # noqa: T201
                    before = speed


def main() -> int:
    """Parse the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--prompts", type=int, default=24)
    asyncio.run(run(arguments.parse_args().prompts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
