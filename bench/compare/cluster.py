"""Runs through a whole local cluster: HTTP in, both services on their own, gRPC between."""

from __future__ import annotations

from collections.abc import Sequence

from bench.compare.rows import Row, Run, row
from bench.compare.workload import PLAIN, Mode
from foredraft.client import CompletionClient, CompletionResult, Prompt
from foredraft_cli.held_out import sampling


async def measure(
    client: CompletionClient,
    prompts: Sequence[Prompt],
    temperature: float,
    max_tokens: int,
    modes: Sequence[Mode],
) -> list[Row]:
    """Decode every prompt plainly and in each mode, in turn; return a row per mode, plain first."""
    runs: dict[str, list[Run]] = {mode.name: [] for mode in (PLAIN, *modes)}
    for index, prompt in enumerate(prompts):
        params = sampling(temperature, index)
        for mode in (PLAIN, *modes):
            answer = await client.complete(prompt, params, max_tokens, **mode.options)
            runs[mode.name].append(_run(answer))
    plain = runs[PLAIN.name]
    return [
        row("cluster", name, temperature, max_tokens, of_mode, plain)
        for name, of_mode in runs.items()
    ]


def _run(answer: CompletionResult) -> Run:
    report = answer.report
    return Run(
        answer.tokens,
        answer.seconds,
        kept=report["num_accepted_draft_tokens"],
        drafted=report["num_draft_tokens"],
        draft_rounds=report["num_spec_steps"],
    )
