"""`foredraft bench assd`: an any-subset target drafts for itself, beside the paper's algorithms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from bench.assd.infill import SPANS, Filler, Quality, tasks
from bench.assd.judge import Judge, by_position, entropy
from bench.assd.law import LawRow, compare
from bench.assd.table import Row, Sample, Written, row
from bench.assd.texts import Masked, masked_texts
from bench.assd.ways import PRINTED, Filled, Way, ways
from foredraft.pacing.config import PaceConfig
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.targets.engine import VerifierEngine

TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class AssdPlan:
    """Texts of `length` tokens with a share masked; drafts of `lengths` tokens, of which `k` is
    reported. The served way also has trees of more tokens, of which `tree` is reported. Holes are
    filled in `tasks` pieces of code. Each pass of the target takes the time of a modelled device,
    if there is one.
    """

    texts: int = 60
    length: int = 128
    share: float = 0.95
    k: int = 5
    lengths: tuple[int, ...] = (2, 4, 5, 8)
    tree: int = 32
    trees: tuple[int, ...] = (16, 32)
    tasks: int = 200
    development: bool = False
    pace: PaceConfig | None = None


QUICK = AssdPlan(texts=8, lengths=(5,), tasks=20)
LAW = AssdPlan(texts=7640)
LAW_QUICK = AssdPlan(texts=64)


class Measured(NamedTuple):
    """The ways of filling scattered tokens, and how well holes of code are filled."""

    rows: list[Row]
    infill: list[Quality]


def measure(
    target: Path, left_to_right: Path, plan: AssdPlan, tokenizer: Path, say: Callable[[str], None]
) -> Measured:
    """Fill texts in each way, in turn, and holes beside a left-to-right target, which also judges
    texts.
    """
    engine = load_engine(_config(target, plan.pace))
    other = load_engine(_config(left_to_right, None))
    read = Tokenizer.from_file(str(tokenizer))
    rows = _rows(engine, Judge(other), plan, read, say)
    filler, infill = Filler(read, engine, other), []
    for span, lines in SPANS.items():
        infill += filler.quality(span, tasks(lines, plan.tasks, plan.development))
        say(f"filled: {span}")
    return Measured(rows, infill)


def measure_law(
    target: Path, left_to_right: Path, plan: AssdPlan, tokenizer: Path, say: Callable[[str], None]
) -> list[LawRow]:
    """Compare what Algorithm 1 writes with sequential decoding, judged by a left-to-right model."""
    model = load_engine(_config(target, None)).model
    judge = Judge(load_engine(_config(left_to_right, None)))
    return compare(model, judge, _texts(plan, Tokenizer.from_file(str(tokenizer))), plan.k, say)


def _texts(plan: AssdPlan, tokenizer: Tokenizer) -> list[Masked]:
    return masked_texts(tokenizer, plan.texts, plan.length, plan.share, plan.development)


def _rows(
    engine: VerifierEngine,
    judged: Judge,
    plan: AssdPlan,
    tokenizer: Tokenizer,
    say: Callable[[str], None],
) -> list[Row]:
    texts = _texts(plan, tokenizer)
    compared = ways(engine, plan.length, plan.lengths, plan.trees)
    rows = []
    for temperature in TEMPERATURES:
        samples: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
        for number, text in enumerate(texts):
            for key, sample in _filled(compared, text, number, temperature, judged).items():
                samples[key].append(sample)
            say(f"T {temperature:g}: {number + 1} of {len(texts)} texts")
        plain = samples[PRINTED, 0]
        rows += [row(way, temperature, samples[way.name, way.k], plain) for way in compared]
    return rows


def _filled(
    compared: list[Way], text: Masked, number: int, temperature: float, judge: Judge
) -> dict[tuple[str, int], Sample]:
    """Fill one text in each way, beginning with another one for each text."""
    first = number % len(compared)
    found: dict[tuple[str, int], Filled] = {}
    for way in (*compared[first:], *compared[:first]):
        found[way.name, way.k] = way.timed(text, temperature)
    samples = {}
    for way in compared:
        filled = found[way.name, way.k]
        whole = by_position(text.layout, [*text.given, *filled.decoded.tokens])
        samples[way.name, way.k] = Sample(
            Written(text.module, judge.nats(whole), entropy(whole)), filled, found[way.beside, 0]
        )
    return samples


def _config(model: Path, pace: PaceConfig | None) -> VerifierConfig:
    return VerifierConfig(model=model, numerics="exact", threads=2, pace=pace)
