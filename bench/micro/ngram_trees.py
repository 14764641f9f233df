"""What trees gain by the text's own repetitions: python -m bench.micro.ngram_trees.

Tokens committed per round, in one process, with trees of --nodes, behind the pair's prompts
(HumanEval's and chat prompts' reporting halves, or held-out code): grown from the model alone, with
the text's n-grams beside it (`tree`), and where the n-grams suffice without the drafter
(`ngram+tree`). Nothing here depends on the machine's speed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

from bench.compare.workload import Mode, dlm
from deployments.config import EMBEDDED_FILE, ForedraftConfig, read
from deployments.in_process import Engines, engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from deployments.preflight import check_models
from foredraft.repetition import repetition
from foredraft_cli.prompts.held_out import sampling
from foredraft_cli.prompts.sets import prompt_sets
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent
from verifier_service.models.checkpoint import load_config, longest_text


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
    texts: Sequence[Sequence[int]],
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
            prompt=tuple(text),
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


def line(prompts: str, name: str, temperature: float, found: Sequence[CompletionResult]) -> str:
    """Return a row of the table."""
    reports = [answer.report for answer in found]
    rounds = sum(report.rounds for report in reports)
    tokens = sum(len(answer.tokens) for answer in found)
    kept, drafted = (
        sum(getattr(r, what) for r in reports) for what in ("num_accepted", "draft_rounds")
    )
    repeated = mean(repetition(answer.tokens) for answer in found)
    return (
        f"{prompts:9s} {temperature:5.1f} {name:22s} {tokens / rounds:10.2f}"
        f" {kept / max(1, drafted):8.2f} {repeated:11.0%}"
    )


async def run(
    file: Path, num_prompts: int, count: int, temperatures: Sequence[float], nodes: int
) -> None:
    """Print the table."""
    args = read(file).application.args
    check_models(args)
    max_len = longest_text(load_config(args.verifier.service.model))
    sets, _ = prompt_sets(args.tokenizer_file, max_len, num_prompts, count)
    sys.stdout.write(f"prompts       T {'':22s} tokens/round   MAT  repetition\n")
    ways = (
        ("tree, without the text", without_text(args), "tree"),
        ("tree", args, "tree"),
        ("ngram+tree", args, "ngram+tree"),
    )
    for name, of_way, proposal in ways:
        async with engines(of_way) as at:
            for asked, temperature in product(sets, temperatures):
                mode = dlm(proposal, nodes)
                found = await answers(at, of_way, asked.prompts, temperature, mode, count)
                sys.stdout.write(line(asked.name, name, temperature, found) + "\n")
                sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.3, 0.8])
    parser.add_argument("--nodes", type=int, default=12)
    args = parser.parse_args()
    asyncio.run(run(args.config, args.prompts, args.tokens, args.temperatures, args.nodes))


if __name__ == "__main__":
    main()
