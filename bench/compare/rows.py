"""Runs in, table rows out: medians over alternating pairs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median
from typing import Any

from foredraft.repetition import repetition


@dataclass(frozen=True, slots=True)
class Run:
    """One decoded prompt: its tokens, seconds from request to last token, accepted draft tokens."""

    tokens: tuple[int, ...]
    seconds: float
    kept: int = 0
    drafted: int = 0
    draft_rounds: int = 0

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.seconds


@dataclass(frozen=True, slots=True)
class Setting:
    """What the ways of decoding that take turns have in common.

    pair names the two models, prompts the set of prompts; where is "process", "cluster" or the name
    of another server.
    """

    pair: str
    prompts: str
    where: str
    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    speedup is the median over prompts of (tokens/s) / (tokens/s of plain decoding next to it),
    between low and high with a confidence of 95 %. mat excludes the bonus token. identical is the
    share of prompts whose tokens equal plain decoding's. repetition is the share of 4-grams that
    occurred before in their text.
    """

    pair: str
    prompts: str
    where: str
    drafter: str
    temperature: float
    num_prompts: int
    max_tokens: int
    tokens_per_s: float
    speedup: float
    low: float
    high: float
    mat: float
    acceptance_rate: float
    identical: float
    repetition: float


def row(setting: Setting, drafter: str, runs: Sequence[Run], plain: Sequence[Run]) -> Row:
    """Return the row of runs that alternated with plain ones over the same prompts and seeds."""
    rounds = sum(run.draft_rounds for run in runs)
    drafted = sum(run.drafted for run in runs)
    kept = sum(run.kept for run in runs)
    ratios = [run.speed / base.speed for run, base in zip(runs, plain, strict=True)]
    low, high = median_interval(ratios)
    same = [run.tokens == base.tokens for run, base in zip(runs, plain, strict=True)]
    return Row(
        pair=setting.pair,
        prompts=setting.prompts,
        where=setting.where,
        drafter=drafter,
        temperature=setting.temperature,
        num_prompts=len(runs),
        max_tokens=setting.max_tokens,
        tokens_per_s=median(run.speed for run in runs),
        speedup=median(ratios),
        low=low,
        high=high,
        mat=kept / rounds if rounds else 0.0,
        acceptance_rate=kept / drafted if drafted else 0.0,
        identical=sum(same) / len(same),
        repetition=sum(repetition(run.tokens) for run in runs) / len(runs),
    )


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the narrowest pair of values, symmetric in rank, that holds the median so surely.

    By order statistics, whatever the distribution; of few values it is all of them.
    """
    ordered, n = sorted(values), len(values)
    # The chance that at most `cut` of n values lie below the median, for one side.
    cut, chance = 0, 0.5**n
    while 2 * (chance + comb(n, cut + 1) * 0.5**n) <= 1 - confidence:
        cut += 1
        chance += comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as JSON values."""
    return [asdict(one) for one in rows]


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = (
        "| pair | prompts | where | decoding | temperature | against plain (median, 95 %) | MAT "
        "| kept/drafted | identical | repetition |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    lines = [
        f"| {r.pair} | {r.prompts} | {r.where} | {r.drafter} | {r.temperature:g} "
        f"| {_against_plain(r)} "
        f"| {r.mat:.2f} | {r.acceptance_rate:.0%} | {r.identical:.0%} | {r.repetition:.0%} |"
        for r in rows
    ]
    return head + "\n".join(lines) + "\n"


def _against_plain(r: Row) -> str:
    if r.drafter == "plain":
        return f"1 ({r.tokens_per_s:.0f} tokens/s)"
    return f"{r.speedup:.2f}x ({r.low:.2f} to {r.high:.2f})"
