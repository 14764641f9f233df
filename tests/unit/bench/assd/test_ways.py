"""The compared ways on a tiny model, the judge, and what the figures say of made-up samples."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.assd.judge import Judge, by_position, entropy
from bench.assd.port import Decoded
from bench.assd.table import Sample, Written, as_markdown, row, summary
from bench.assd.texts import Masked
from bench.assd.ways import PRINTED, SERVED, Filled, Way, ways
from foredraft.layout import Layout
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.models import numerics
from verifier_service.targets.engine import VerifierEngine

LAYOUT = Layout(24, (0, 5, 6, 20))
TEXT = Masked("module", LAYOUT, (7, 8, 9, 10), 3)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> VerifierEngine:
    folder = write_tiny(tmp_path_factory.mktemp("any"), any_subset={"mask_token_id": 1})
    return load_engine(VerifierConfig(model=folder, kv_tokens=4096))


@pytest.mark.skipif(not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_all_exact_ways_write_the_same_text(engine: VerifierEngine, temperature: float) -> None:
    compared = ways(engine, LAYOUT.length, (2, 5), (16,))
    found = {(way.name, way.k): way.timed(TEXT, temperature).decoded for way in compared}
    plain = found[SERVED, 0]
    for way in compared:
        each = found[way.name, way.k]
        assert len(each.tokens) == 20
        if way.exact or temperature == 0:
            assert each.tokens == plain.tokens
        if "bigrams" not in way.name:
            assert each.calls <= 20
    assert plain.calls == found[PRINTED, 0].calls == 20
    assert {way.beside for way in compared} == {SERVED, PRINTED}
    assert all(each.auxiliary for (name, _), each in found.items() if "bigrams" in name)


def test_a_text_is_judged_by_position(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_tiny(tmp_path_factory.mktemp("judge"))
    # The text is read in several passes.
    settings = VerifierConfig(model=folder, kv_tokens=4096, row_budget=8, prefill_rows=8)
    judge = Judge(load_engine(settings))
    ordered = [*TEXT.given, *range(30, 50)]
    text = by_position(LAYOUT, ordered)
    assert text[:8] == [7, 30, 31, 32, 33, 8, 9, 34] and text[20] == 10
    # Random weights know nothing: about the log of the vocabulary's size.
    assert 4 < judge.nats(text) < 8
    assert entropy([1, 1, 2, 2]) == pytest.approx(math.log(2)) and entropy([3, 3]) == 0


def samples(nats: float, seconds: float, tokens: int = 3, modules: int = 20) -> list[Sample]:
    noise = np.random.default_rng(int(1000 * nats)).normal(0, 0.01, modules)
    beside = Filled(Decoded((1, 2, 3), 3, 3), 1.0)
    return [
        Sample(
            Written(f"m{at}", nats + float(each), 2.0 + float(each)),
            Filled(Decoded((1, 2, tokens), 2, 1), seconds),
            beside,
        )
        for at, each in enumerate(noise)
    ]


WAY = Way("served, self", 5, lambda text, sampling: Decoded((), 0, 0), SERVED)


@pytest.mark.parametrize(
    ("nats", "verdict"),
    [(3.0, "equivalent, equivalent"), (3.2, "contradicted, equivalent")],
)
def test_texts_are_alike_or_not(nats: float, verdict: str) -> None:
    plain = samples(3.001, 1.0)
    assert row(WAY, 1.0, samples(nats, 0.5), plain).alike == verdict
    few = row(WAY, 1.0, samples(nats, 0.5, modules=5), samples(3.001, 1.0, modules=5))
    assert few.alike == "cannot tell, cannot tell"


def test_figures_are_those_of_the_samples() -> None:
    found = row(WAY, 0.0, samples(3.0, 0.5), samples(3.0, 1.0))
    assert found.identical == 1.0
    assert found.tokens_per_iteration.value == 3.0
    assert found.calls_share.value == pytest.approx(2 / 3)
    assert found.speedup.value == pytest.approx(2.0)
    assert found.speedup.low <= 2.0 <= found.speedup.high
    assert row(WAY, 1.0, samples(3.0, 0.5, tokens=4), samples(3.0, 1.0)).identical == 0.0
    sampled = replace(WAY, name="Algorithm 1, self", exact=False)
    law = row(sampled, 1.0, samples(3.0, 0.5, tokens=4), samples(3.0, 1.0))
    assert law.identical is None
    rows = [found, found._replace(temperature=1.0), law]
    figures = summary(rows, 5, 5)
    assert figures["identical"] == 1.0 and figures["speedup_printed"] == law.speedup
    assert as_markdown(rows).count("\n") == 5
