"""Runs through a whole local cluster: HTTP in, both services on their own, gRPC between."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import track

from bench.compare.rows import Row, Run, Setting, row
from bench.compare.workload import PLAIN, Mode
from foredraft.client import CompletionClient, CompletionResult, Prompt
from foredraft_cli.prompts.held_out import sampling


async def measure(
    client: CompletionClient, prompts: Sequence[Prompt], setting: Setting, modes: Sequence[Mode]
) -> list[Row]:
    """Decode every prompt plainly and in each mode, in turn; return a row per mode, plain first."""
    runs: dict[str, list[Run]] = {mode.name: [] for mode in (PLAIN, *modes)}
    label = f"{setting.pair}, {setting.prompts}, temperature {setting.temperature:g}"
    for index, prompt in enumerate(track(prompts, label, transient=True)):
        for mode in (PLAIN, *modes):
            runs[mode.name].append(await decode(client, prompt, setting, index, mode))
    return [row(setting, name, of_mode, runs[PLAIN.name]) for name, of_mode in runs.items()]


async def decode(
    client: CompletionClient, prompt: Prompt, setting: Setting, index: int, mode: Mode
) -> Run:
    """Return one completion's run; index numbers the prompt and chooses its seed."""
    params = sampling(setting.temperature, index)
    return run_of(await client.complete(prompt, params, setting.max_tokens, **mode.options))


def run_of(answer: CompletionResult) -> Run:
    """Return a completion's tokens, time and accepted drafts."""
    report = answer.report
    return Run(
        answer.tokens,
        answer.seconds,
        kept=report["num_accepted_draft_tokens"],
        drafted=report["num_draft_tokens"],
        draft_rounds=report["num_spec_steps"],
    )
