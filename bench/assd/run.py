"""`foredraft bench assd`: an any-subset target drafts for itself, beside the paper's algorithms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from bench.assd.judge import Judge, by_position, entropy
from bench.assd.table import Row, Sample, row
from bench.assd.texts import Masked, masked_texts
from bench.assd.ways import PRINTED, Filled, Way, ways
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine

TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class AssdPlan:
    """Texts of `length` tokens with a share masked; drafts of `lengths` tokens, of which `k` is
    reported.
    """

    texts: int = 60
    length: int = 128
    share: float = 0.95
    k: int = 5
    lengths: tuple[int, ...] = (2, 4, 5, 8)
    development: bool = False


QUICK = AssdPlan(texts=8, lengths=(5,))


def measure(
    target: Path, judge: Path, plan: AssdPlan, tokenizer: Path, say: Callable[[str], None]
) -> list[Row]:
    """Fill the texts in each way, in turn, and return the rows."""
    engine = load_engine(_config(target))
    texts = masked_texts(
        Tokenizer.from_file(str(tokenizer)), plan.texts, plan.length, plan.share, plan.development
    )
    compared, judged = ways(engine, plan.length, plan.lengths), Judge(load_engine(_config(judge)))
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
            text.module, filled, found[way.beside, 0], judge.nats(whole), entropy(whole)
        )
    return samples


def _config(model: Path) -> VerifierConfig:
    return VerifierConfig(model=model, numerics="exact", threads=2)
