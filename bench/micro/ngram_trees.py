"""What trees gain by the text's own repetitions: python -m bench.micro.ngram_trees.

Tokens committed per round, in one process, with trees of twelve nodes behind evenly spaced
held-out prompts: grown from the model alone, with the text's n-grams beside it (`tree`), and where
the n-grams suffice without the drafter (`ngram+tree`). Nothing here depends on the
machine's speed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bench.compare.workload import Mode, dlm
from deployments.config import EMBEDDED_FILE, ForedraftConfig, read
from deployments.in_process import Engines, engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from foredraft.repetition import repetition
from foredraft_cli.prompts.held_out import prompts, sampling
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent

TEMPERATURES = (0.0, 0.3, 0.8)
NODES = 12


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """One request's tokens and its report."""

    tokens: list[int]
    report: SpeculationReport


def without_text(args: ForedraftConfig) -> ForedraftConfig:
    """Return the configuration whose trees are grown from the model alone."""
    service = args.drafter.service
    tree = service.tree.model_copy(update={"pseudocounts": ()})
    drafter = args.drafter.model_copy(update={"service": service.model_copy(update={"tree": tree})})
    return args.model_copy(update={"drafter": drafter})


async def answers(
    at: Engines,
    args: ForedraftConfig,
    texts: Sequence[str],
    temperature: float,
    mode: Mode,
    count: int,
) -> list[CompletionResult]:
    """Return what is decoded behind each text, and how."""
    options = SpeculativeOptions.model_validate(mode.options)
    config, state = options.applied_to(args.orchestrator), ControllerState()
    found: list[CompletionResult] = []
    for index, text in enumerate(texts):
        name = f"{mode.name} {temperature} {index}"
        request = GenerationRequest(
            session_id=name,
            prompt=tuple(at.tokenizer.encode(text).ids),
            sampling=sampling(temperature, index),
            max_new_tokens=count,
            stop_token_ids=at.eos,
            cache_salt=name,
        )
        tokens: list[int] = []
        async for event in generate(request, at.drafter, at.verifier, config, state=state):
            if isinstance(event, StepEvent):
                tokens += [committed.token for committed in event.tokens]
            else:
                found.append(CompletionResult(tokens, event.report))
    return found


def line(name: str, temperature: float, found: Sequence[CompletionResult]) -> str:
    """Return a row of the table."""
    reports = [answer.report for answer in found]
    rounds = sum(report.rounds for report in reports)
    tokens = sum(len(answer.tokens) for answer in found)
    kept, drafted = (
        sum(getattr(r, what) for r in reports) for what in ("num_accepted", "draft_rounds")
    )
    repeated = mean(repetition(answer.tokens) for answer in found)
    return (
        f"{temperature:5.1f} {name:22s} {tokens / rounds:10.2f} {kept / max(1, drafted):8.2f}"
        f" {repeated:11.0%}"
    )


async def run(file: Path, num_prompts: int, count: int) -> None:
    """Print the table."""
    args, texts = read(file).application.args, prompts(num_prompts)
    sys.stdout.write(f"    T {'':22s} tokens/round   MAT  repetition\n")
    ways = (
        ("tree, without the text", without_text(args), "tree"),
        ("tree", args, "tree"),
        ("ngram+tree", args, "ngram+tree"),
    )
    for name, of_way, proposal in ways:
        async with engines(of_way) as at:
            for temperature in TEMPERATURES:
                mode = dlm(proposal, NODES)
                found = await answers(at, of_way, texts, temperature, mode, count)
                sys.stdout.write(line(name, temperature, found) + "\n")
                sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=96)
    args = parser.parse_args()
    asyncio.run(run(args.config, args.prompts, args.tokens))


if __name__ == "__main__":
    main()
