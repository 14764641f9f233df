"""`foredraft demo --diffusion`: blocks of a diffusion target as they fill, and one honest table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from deployments.config import ServeFile
from deployments.denoiser_pool import DenoiserPool
from deployments.preflight import check_models
from deployments.serve.cluster import running
from foredraft.client import CompletionClient, CompletionResult, completion_body
from foredraft.errors import ConfigError
from foredraft.repetition import repetition
from foredraft.types import SamplingParams
from foredraft_cli.prompts import held_out

_GREEDY = SamplingParams()
_MASKED = "\u2591"
# Tokens of a prompt.
_PROMPT = 64


class Way(NamedTuple):
    """A column of the table: its name, how slots are filled, and whether states are drafted."""

    name: str
    unmasking: Mapping[str, Any]
    drafted: bool


def ways(pool: DenoiserPool) -> list[Way]:
    """Return one slot a step, the configured unmasking, and that with drafts."""
    own = pool.unmasking.model_dump()
    return [
        Way("one slot a step", {"kind": "static", "per_step": 1}, False),
        Way(f"{pool.unmasking.kind} unmasking", own, False),
        Way("with draft graphs", own, True),
    ]


async def run(file: ServeFile, count: int, max_tokens: int) -> None:
    """Start the cluster, show one answer's blocks, compare `count` prompts, shut down.

    Raise ConfigError where the configuration has no diffusion target.
    """
    console = Console(highlight=False)
    args = file.application.args
    if args.denoiser is None:
        raise ConfigError("the configuration has no diffusion target", param="denoiser")
    check_models(args)
    pool = args.denoiser
    tokenizer = Tokenizer.from_file(str(pool.tokenizer_file))
    texts = held_out.prompts(count)
    prompts = [tokenizer.encode(each, add_special_tokens=False).ids[:_PROMPT] for each in texts]
    console.print("Starting the cluster on this machine ...")
    with running(file) as cluster:
        console.print(f"Ready at {cluster.url}: {pool.name}.\n")
        async with CompletionClient(cluster.url) as client:
            await _show(console, client, tokenizer, prompts[len(prompts) // 2], max_tokens, pool)
            console.print(await compare(client, prompts, max_tokens, pool))
    console.print("Shut down.")


async def _show(
    console: Console,
    client: CompletionClient,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    max_tokens: int,
    pool: DenoiserPool,
) -> None:
    """Show a text, and behind it the slots of its block, as each call of the model leaves them."""
    body = completion_body(prompt, _GREEDY, max_tokens, {"detail": True}) | {"model": pool.name}
    given = Text(tokenizer.decode(prompt, skip_special_tokens=False), "dim")
    written: list[int] = []
    with Live(given, console=console, auto_refresh=False) as live:
        async for choice in client.choices(body):
            written += choice["token_ids"]
            text = Text.assemble(given, tokenizer.decode(written, skip_special_tokens=False))
            block = choice.get("block")
            if block is not None:
                ahead = block["texts"][max(0, len(written) - block["first"]) :]
                text.append("".join(each or _MASKED for each in ahead), "cyan")
            live.update(text, refresh=True)
    console.print()


async def compare(
    client: CompletionClient, prompts: Sequence[Sequence[int]], max_tokens: int, pool: DenoiserPool
) -> Table:
    """Return the table of the ways, alternating on the same prompts."""
    columns = ways(pool)
    found: dict[str, list[CompletionResult]] = {way.name: [] for way in columns}
    for prompt in prompts:
        for way in columns:
            fields = {"model": pool.name, "unmasking": dict(way.unmasking)}
            answer = await client.complete(prompt, _GREEDY, max_tokens, fields, enabled=way.drafted)
            found[way.name].append(answer)
    table = Table(title=f"{len(prompts)} held-out prompts x {max_tokens} tokens, temperature 0")
    table.add_column("")
    for way in columns:
        table.add_column(way.name, justify="right")
    for name, *cells in rows([found[way.name] for way in columns]):
        table.add_row(name, *cells)
    return table


def rows(found: Sequence[Sequence[CompletionResult]]) -> list[tuple[str, ...]]:
    """Return the table's rows of answers in three ways, of which the last drafts for the second."""
    _, undrafted, drafted = found
    same = all(one.tokens == two.tokens for one, two in zip(undrafted, drafted, strict=True))

    def per_call(answers: Sequence[CompletionResult]) -> float:
        calls: int = sum(answer.report["num_target_passes"] for answer in answers)
        return sum(len(answer.tokens) for answer in answers) / max(1, calls)

    speeds = [median(len(each.tokens) / each.seconds for each in answers) for answers in found]
    repeats = [mean(repetition(each.tokens) for each in answers) for answers in found]
    return [
        ("tokens per second (median)", *(f"{each:.0f}" for each in speeds)),
        ("against undrafted", *(f"{each / speeds[1]:.2f}x" for each in speeds)),
        ("tokens per call", *(f"{per_call(each):.2f}" for each in found)),
        ("repetition", *(f"{each:.0%}" for each in repeats)),
        ("identical to undrafted", "", "", "yes" if same else "no"),
    ]
