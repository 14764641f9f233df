"""`foredraft demo`: a streamed completion, token colours, and one honest table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from deployments.config import ForedraftConfig, ServeFile
from deployments.preflight import check_models
from deployments.serve.cluster import running
from foredraft.client import CompletionClient, CompletionResult
from foredraft.types import SamplingParams
from foredraft_cli.colours import STYLES, legend
from foredraft_cli.prompts.sets import PromptSet, prompt_sets

_GREEDY = SamplingParams()
# Of a configuration that keeps it elsewhere; the demo's prompts are shorter.
_USUAL_LEN = 2048


async def run(file: ServeFile, count: int, max_tokens: int) -> None:
    """Start the cluster, stream one answer, compare `count` prompts of each set, shut down."""
    console = Console(highlight=False)
    args = file.application.args
    check_models(args)
    sets, left_out = prompt_sets(args.tokenizer_file, _max_len(args), count, max_tokens)
    console.print("Starting drafter, verifier and orchestrator on this machine ...")
    with running(file) as cluster:
        console.print(f"Ready at {cluster.url}: {_names(cluster.health)}.\n")
        tokenizer = Tokenizer.from_file(str(args.tokenizer_file))
        async with CompletionClient(cluster.url) as client:
            shown = sets[-1].prompts
            await _show(console, client, tokenizer, shown[len(shown) // 2], max_tokens)
            for prompts in sets:
                console.print(await _compare(client, prompts, max_tokens))
    for line in left_out:
        console.print(line)
    console.print("Shut down.")


def _names(health: Mapping[str, Any]) -> str:
    """Return what is served, in a line."""
    verifier, drafter = health["verifier"], health["drafter"] or {}
    why = drafter.get("refused")
    drafts = f"no drafts: {why}" if why else f"drafts by {drafter.get('model', 'none yet')}"
    return f"{verifier['model']}, numerics {verifier['numerics']}; {drafts}"


def _max_len(args: ForedraftConfig) -> int:
    """Return how long a text may be, read without transformers, whose import takes seconds."""
    config = json.loads((args.verifier.service.model / "config.json").read_text())
    return int(config.get("max_position_embeddings", _USUAL_LEN))


async def _show(
    console: Console,
    client: CompletionClient,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    max_tokens: int,
) -> None:
    console.print(legend())
    console.print(Text(tokenizer.decode(prompt, skip_special_tokens=False), "dim"), end="")
    async for _, tokens in client.stream(prompt, _GREEDY, max_tokens):
        for token, origin, _ in tokens:
            console.print(Text(tokenizer.decode([token]), STYLES[origin]), end="")
    console.print("\n")


async def _compare(client: CompletionClient, prompts: PromptSet, max_tokens: int) -> Table:
    """Return the table of plain decoding and Foredraft, alternating on the same prompts."""
    plain: list[CompletionResult] = []
    fast: list[CompletionResult] = []
    for prompt in prompts.prompts:
        plain.append(await client.complete(prompt, _GREEDY, max_tokens, enabled=False))
        fast.append(await client.complete(prompt, _GREEDY, max_tokens))
    table = Table(
        title=f"{len(prompts.prompts)} prompts of {prompts.name} x {max_tokens} tokens, "
        "temperature 0"
    )
    table.add_column("")
    table.add_column("plain decoding", justify="right")
    table.add_column("Foredraft", justify="right")
    for name, of_plain, of_fast in _rows(plain, fast):
        table.add_row(name, of_plain, of_fast)
    return table


def _rows(
    plain: list[CompletionResult], fast: list[CompletionResult]
) -> list[tuple[str, str, str]]:
    def speed(answers: list[CompletionResult]) -> float:
        return median(len(answer.tokens) / answer.seconds for answer in answers)

    def total(key: str, answers: list[CompletionResult]) -> float:
        return float(sum(answer.report[key] for answer in answers))

    def ratio(over: str, under: str) -> float:
        return total(over, fast) / max(total(under, fast), 1.0)

    def shares(answers: list[CompletionResult]) -> str:
        parts: list[Any] = [
            total(key, answers) for key in ("drafting_s", "verifying_s", "waiting_s")
        ]
        whole = sum(parts) or 1.0
        return " / ".join(f"{part / whole:.0%}" for part in parts)

    speedup = median(p.seconds / f.seconds for p, f in zip(plain, fast, strict=True))
    same = all(p.tokens == f.tokens for p, f in zip(plain, fast, strict=True))
    ahead = total("run_ahead_rounds", fast)
    return [
        ("tokens per second (median)", f"{speed(plain):.0f}", f"{speed(fast):.0f}"),
        ("speedup (median of pairs)", "1.00x", f"{speedup:.2f}x"),
        (
            "MAT (bonus excluded)",
            "-",
            f"{ratio('num_accepted_draft_tokens', 'num_spec_steps'):.2f}",
        ),
        (
            "kept / drafted",
            "-",
            f"{ratio('num_accepted_draft_tokens', 'num_draft_tokens'):.0%}",
        ),
        (
            "run-ahead hit rate",
            "-",
            f"{ratio('run_ahead_hits', 'run_ahead_rounds'):.0%} of {ahead:.0f}",
        ),
        ("mean draft length k", "-", f"{ratio('num_draft_tokens', 'num_spec_steps'):.1f}"),
        ("drafting / verifying / waiting", shares(plain), shares(fast)),
        ("identical", "", "yes" if same else "no"),
    ]
