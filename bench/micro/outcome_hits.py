"""How often a draft names its round's outcome: python -m bench.micro.outcome_hits.

In one process, behind evenly spaced held-out prompts: the share of rounds whose outcome (the last
accepted token and the target's own behind it) is among the draft's n likeliest guesses, and beside
it what the guesses' probabilities add up to, which is the same where they are calibrated. Nothing
here depends on the machine's speed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.compare.workload import Mode, dlm
from bench.micro.ngram_trees import answers
from deployments.config import EMBEDDED_FILE, ForedraftConfig, read
from deployments.in_process import Engines, engines
from foredraft.decoding.tree import ROOT, explicit
from foredraft.limits import MAX_OUTCOMES
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.types import Guess
from foredraft_cli.prompts.held_out import TEMPERATURES, prompts
from orchestrator.ports import DrafterPort, DraftStream

NUM_GUESSES = (1, 2, 4, 8, 16, 32, 48)
NODES = (2, 4, 8, 12)


@dataclass(frozen=True, slots=True)
class Round:
    """A draft's guesses, and the place of the true outcome among them, None if it is not there."""

    guesses: tuple[Guess, ...]
    place: int | None


class Recorder:
    """A drafter port that keeps each block beside the number of tokens before it."""

    def __init__(self, port: DrafterPort) -> None:
        self._port = port
        self.sessions: list[list[DraftBlock]] = []

    async def open(self, request: DraftOpen) -> RecordedStream:
        """Open the session on the other port."""
        self.sessions.append([])
        return RecordedStream(await self._port.open(request), self.sessions[-1])


class RecordedStream:
    """One session's stream; see ports.DraftStream."""

    draining = False

    def __init__(self, stream: DraftStream, blocks: list[DraftBlock]) -> None:
        self._stream, self._blocks = stream, blocks

    @property
    def opened(self) -> DraftOpened:
        """The drafter's description of itself on open."""
        return self._stream.opened

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the other stream's block."""
        block = await self._stream.propose(request)
        self._blocks.append(block)
        return block

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the other stream's blocks."""
        return await self._stream.propose_ahead(request)

    async def close(self) -> None:
        """End the session on the drafter."""
        await self._stream.close()


def true_outcome(block: DraftBlock, after: Sequence[int]) -> tuple[int, int] | None:
    """Return the (node, token) that a draft's round ends with, where `after` follows its prefix;
    None where the text ends before.
    """
    parents = explicit(block.parents, len(block.tokens))
    node = ROOT
    for token in after:
        below = (i for i, parent in enumerate(parents) if parent == node)
        child = next((i for i in below if block.tokens[i] == token), None)
        if child is None:
            return node, token
        node = child
    return None


async def rounds(
    at: Engines, config: ForedraftConfig, texts: Sequence[str], temperature: float, mode: Mode
) -> list[Round]:
    """Return the drafted rounds behind the texts."""
    recorder = Recorder(at.drafter)
    asked = [at.tokenizer.encode(text).ids for text in texts]
    found = await answers(replace(at, drafter=recorder), config, asked, temperature, mode, TOKENS)
    return [
        each
        for prompt, answer, blocks in zip(asked, found, recorder.sessions, strict=True)
        for each in _rounds_of(len(prompt), answer.tokens, blocks)
    ]


def _rounds_of(prompt: int, tokens: Sequence[int], blocks: Sequence[DraftBlock]) -> Iterator[Round]:
    for block in blocks:
        outcome = true_outcome(block, tokens[block.base.prefix_len - prompt :])
        if outcome is not None:
            named = [guess[:2] for guess in block.guesses]
            yield Round(block.guesses, named.index(outcome) if outcome in named else None)


def line(temperature: float, nodes: int, found: Sequence[Round]) -> str:
    """Return a row of the table."""
    cells = []
    for count in NUM_GUESSES:
        hits = fmean(each.place is not None and each.place < count for each in found)
        hoped = fmean(sum(g.probability for g in each.guesses[:count]) for each in found)
        cells.append(f"{hits:.0%} ({hoped:.0%})")
    return f"| {temperature:g} | {nodes} | {len(found)} | {' | '.join(cells)} |\n"


TOKENS = 64


async def run(file: Path, num_prompts: int) -> None:
    """Print the table."""
    config, texts = read(file).application.args, prompts(num_prompts)
    orchestrator = config.orchestrator.model_copy(
        update={"run_ahead_outcomes": MAX_OUTCOMES, "run_ahead_min_hit_rate": 1.0}
    )
    config = config.model_copy(update={"orchestrator": orchestrator})
    counts = " | ".join(f"{count} outcomes" for count in NUM_GUESSES)
    sys.stdout.write(f"| temperature | nodes | rounds | {counts} |\n")
    sys.stdout.write("|---|---|---|" + "---|" * len(NUM_GUESSES) + "\n")
    async with engines(config) as at:
        for temperature in TEMPERATURES:
            for nodes in NODES:
                mode = dlm("tree", nodes)
                found = await rounds(at, config, texts, temperature, mode)
                sys.stdout.write(line(temperature, nodes, found))
                sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--prompts", type=int, default=32)
    args = parser.parse_args()
    asyncio.run(run(args.config, args.prompts))


if __name__ == "__main__":
    main()
