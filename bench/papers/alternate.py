"""Ways of decoding in turn on the same prompts and seeds, with plain decoding between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.papers.experiments.families import Prompt
from bench.papers.pair import Pair
from bench.papers.plan import Size
from bench.papers.ways import Column, Sample, Way
from foredraft_cli.prompts.held_out import sampling

# Ways decoded after one plain run, all compared with it.
_PLAIN_EVERY = 3


async def alternate(
    pair: Pair,
    prompts: Sequence[Prompt],
    ways: Sequence[Way],
    temperature: float,
    tokens: int,
    seeds: int = 1,
) -> dict[str, Column]:
    """Decode every prompt in every way; return each way's samples, in the prompts' order.

    Above temperature 0 that is done with several seeds, one after the other. Which way comes first
    goes round with the prompts, so that no way is always the one that finds the caches as another
    left them.
    """
    columns: dict[str, Column] = {way.name: [] for way in ways}
    turns = seeds if temperature > 0 else 1
    for index, prompt in enumerate([*prompts] * turns):
        text = pair.encode(prompt.text)
        params = sampling(temperature, index)
        first = index % len(ways)
        for turn, way in enumerate([*ways[first:], *ways[:first]]):
            if turn % _PLAIN_EVERY == 0:
                plain = await pair.plain.decode(text, params, tokens)
            decoded = await way.decode(text, params, tokens)
            columns[way.name].append(Sample(prompt, decoded, plain))
    return columns


@dataclass(frozen=True, slots=True)
class Together:
    """Sessions decoded at once: all their tokens per second, and their texts."""

    tokens_per_s: float
    texts: tuple[tuple[int, ...], ...]


async def together(pair: Pair, prompts: Sequence[Prompt], way: Way, tokens: int) -> Together:
    """Decode all prompts at once, greedily; the time runs until the last of them ends."""
    texts = [pair.encode(prompt.text) for prompt in prompts]
    started = time.perf_counter()
    found = await asyncio.gather(*(way.decode(text, sampling(0.0, 0), tokens) for text in texts))
    seconds = time.perf_counter() - started
    made = tuple(decoded.run.tokens for decoded in found)
    return Together(sum(map(len, made)) / seconds, made)


def limited(prompts: Sequence[Prompt], size: Size) -> Sequence[Prompt]:
    """Return a table's prompts; they take turns by family, so each gets its share."""
    return prompts[: size.prompts]
