"""What a stale prefix costs a fully bidirectional drafter: python -m bench.micro.prefix_refresh.

First `foredraft train corpus` and `python -m training.embedded.bidirectional`, to train one for the
embedded target, or --model with one of your own for it. The target writes behind held-out prompts,
plainly; drafters that differ in `prefix_refresh` alone then draft for what it wrote, in turn, round
by round: each keeps what agrees, and receives one token more. That is what decoding does, whose
tokens are the same for every drafter, without the verifier's time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.micro.path_search import right
from deployments.config import EMBEDDED_FILE, read
from deployments.in_process import engines
from drafter_service.config import DrafterConfig, TreeConfig
from drafter_service.engine import DrafterEngine
from drafter_service.load import load_engine
from drafter_service.proposals.proposals import Drafted
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftBlock, DraftOpen, Propose
from foredraft.repetition import repetition
from foredraft.types import Base, Proposal, SamplingParams
from foredraft_cli.prompts.held_out import TEMPERATURES, prompts, sampling
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent

NEVER = 1 << 20
EVERY = (0, 8, 16, 32, 64, 128, NEVER)
SLOTS, NODES = 8, 16


@dataclass(frozen=True, slots=True)
class Written:
    """A prompt and what the target wrote behind it, as tokens, and how it was sampled."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    sampling: SamplingParams


@dataclass
class Side:
    """A drafter of one refresh period: what each round kept, and each pass's time in ms."""

    refresh: int
    engine: DrafterEngine
    kept: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        """The name of the period."""
        return {0: "every pass", NEVER: "never"}.get(self.refresh, f"{self.refresh} tokens")


async def written(texts: Sequence[str], temperature: float, count: int) -> list[Written]:
    """Return what the embedded target writes behind each text, decoded plainly."""
    config = read(EMBEDDED_FILE).application.args
    found = []
    async with engines(config) as loaded:
        for index, text in enumerate(texts):
            prompt = tuple(loaded.tokenizer.encode(text).ids)
            request = GenerationRequest(
                session_id=uuid.uuid4().hex,
                prompt=prompt,
                sampling=sampling(temperature, index),
                max_new_tokens=count,
                stop_token_ids=loaded.eos,
                speculate=False,
            )
            tokens: list[int] = []
            async for event in generate(
                request, loaded.drafter, loaded.verifier, config.orchestrator
            ):
                if isinstance(event, StepEvent):
                    tokens += [committed.token for committed in event.tokens]
            found.append(Written(prompt, tuple(tokens), request.sampling))
    return found


class Rounds:
    """One drafter's way through one text."""

    def __init__(self, side: Side, text: Written) -> None:
        self._side, self._text, self._at = side, text, 0
        longest = len(text.prompt) + len(text.tokens) + SLOTS
        opened = DraftOpen("bench", text.prompt, text.sampling, Proposal.TREE, longest)
        self._handle, _ = side.engine.open(opened)
        self._known = len(text.prompt)

    def ended(self) -> bool:
        """Return whether there is nothing left to draft for."""
        return self._at >= len(self._text.tokens) - 1

    def go(self) -> None:
        """Draft, keep what agrees, and go on behind the token after it."""
        side, text = self._side, self._text
        prefix = (*text.prompt, *text.tokens[: self._at])
        base = Base("bench", self._at, len(prefix), hash_prefix(prefix))
        ask = Propose(base, self._known, prefix[self._known :], NODES)
        begin = time.perf_counter()
        [block] = side.engine.propose([(self._handle, ask)])
        side.times.append(1e3 * (time.perf_counter() - begin))
        assert isinstance(block, DraftBlock), block
        drafted = Drafted(block.tokens, 0, 0, block.parents)
        side.kept.append(right(drafted, text.tokens[self._at :]))
        self._known, self._at = len(prefix), self._at + side.kept[-1] + 1

    def close(self) -> None:
        """End the session."""
        self._side.engine.close(self._handle)


def drafted(model: Path, every: Sequence[int], texts: Sequence[Written]) -> list[Side]:
    """Return the sides after their rounds through all texts, which they take in turn."""
    # The text's n-grams would hide what the model no longer sees.
    alone = TreeConfig(pseudocounts=())
    config = DrafterConfig(
        model=model, dtype="float32", max_mask_slots=SLOTS, threads=1, tree=alone
    )
    sides = [
        Side(refresh, load_engine(config.model_copy(update={"prefix_refresh": refresh})))
        for refresh in every
    ]
    for text in texts:
        under_way = [Rounds(side, text) for side in sides]
        while left := [rounds for rounds in under_way if not rounds.ended()]:
            for rounds in left:
                rounds.go()
        for rounds in under_way:
            rounds.close()
    return sides


def rows(temperature: float, texts: Sequence[Written], sides: Sequence[Side]) -> list[str]:
    """Return the table's rows."""
    repeats = statistics.mean(repetition(text.tokens) for text in texts)
    lines = []
    for side in sides:
        kept, count, ms = sum(side.kept), len(side.kept), sum(side.times)
        error = statistics.stdev(side.kept) / count**0.5
        lines.append(
            f"| {temperature:g} | {side} | {kept / count:.2f} ± {error:.2f} | {repeats:.0%} "
            f"| {statistics.median(side.times):.1f} | {ms / count:.1f} "
            f"| {1e3 * (kept + count) / ms:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("build/train/bidirectional"))
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=160, help="of the target's own, for each")
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--every", type=int, nargs="+", default=EVERY, help="0 is every pass")
    args = parser.parse_args()
    lines = [
        "| temperature | read anew | kept per round | repetition | ms per pass, median | mean "
        "| tokens/s of drafting |",
        "|---|---|---|---|---|---|---|",
    ]
    for temperature in args.temperatures:
        texts = asyncio.run(written(prompts(args.prompts), temperature, args.tokens))
        lines += rows(temperature, texts, drafted(args.model, args.every, texts))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
