"""Denoising for the bench: the texts of plain unmasking, and what the figures say of samples."""

from __future__ import annotations

import pytest

from bench.spiffy.family import Family
from bench.spiffy.quality import Parsed
from bench.spiffy.run import SpiffyPlan
from bench.spiffy.table import Sample, as_markdown, row
from bench.spiffy.ways import DYNAMIC, ONE_BY_ONE, Denoised, denoise
from foredraft.types import SamplingParams
from tests.support.denoiser.paged import PagedTable, make_engine
from tests.support.denoiser.tabular import SLOTS, all_successors

PROMPTS = [(1, 0, 2, 1), (2, 2), (0, 1, 1, 1, 1, 2, 0)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("way", [ONE_BY_ONE, DYNAMIC])
def test_drafts_leave_the_texts_and_divide_the_calls(way, temperature) -> None:
    sampling = [SamplingParams(temperature, seed=seed) for seed in range(3)]
    model = PagedTable(blocks=400)
    engine = make_engine(model, lambda rule, most: all_successors, row_budget=1000, most_drafts=64)
    plain = denoise(engine, PROMPTS, way, sampling, 12)
    fast = denoise(engine, PROMPTS, way._replace(drafts=64), sampling, 12)
    alone = [
        denoise(engine, [prompt], way, [sampled], 12).texts[0]
        for prompt, sampled in zip(PROMPTS, sampling, strict=True)
    ]
    assert fast.texts == plain.texts == tuple(alone)
    assert all(len(text) == 12 for text in plain.texts)
    assert plain.calls == plain.steps == fast.steps
    assert fast.calls < plain.calls
    assert fast.model_s > 0 and 0 < fast.draft_s < fast.seconds - fast.model_s
    assert model.pool.available == model.pool.total


def test_a_plan_compares_each_unmasking_with_itself() -> None:
    ways = SpiffyPlan(drafts=(1, 3)).ways
    names = ("static, 1 a step", "dynamic, 0.9")
    ours = [way for way in ways if not way.priced and not way.printed]
    assert [(way.name, way.drafts) for way in ours] == [
        (name, drafts) for name in names for drafts in (0, 1, 3)
    ]
    assert [(way.name, way.drafts) for way in ways if way.printed] == [
        (name, drafts) for name in names for drafts in (1, 3)
    ]
    assert [(way.name, way.drafts) for way in ways if way.priced] == [(name, 3) for name in names]
    assert {way.vanilla for way in ways} == {ONE_BY_ONE, DYNAMIC}


def test_figures_are_those_of_the_samples() -> None:
    plain = Denoised(((1, 2, 3, 4),), 4, 4, 1.0, 0.9, 0.0)
    fast = Denoised(((1, 2, 3, 4),), 2, 4, 0.5, 0.4, 0.04)
    wrong = fast._replace(texts=((1, 2, 3, 5),), steps=1)
    samples = [Sample(f"m{at}", fast, plain, plain, Parsed(2, at % 2)) for at in range(12)]
    found = row(DYNAMIC._replace(drafts=3), SLOTS, 0.0, samples)
    assert (found.identical, found.calls_within_steps, found.texts) == (1.0, True, 12)
    assert found.calls_divided.value == found.speed.value == found.tokens_per_call.value == 2.0
    assert found.beside_model.value == pytest.approx(0.25)
    assert found.drafting.value == pytest.approx(0.1)
    assert found.parses == 0.25
    bad = row(DYNAMIC, SLOTS, 0.0, [*samples, Sample("m", wrong, plain, plain, Parsed())])
    assert bad.identical == pytest.approx(12 / 13) and not bad.calls_within_steps
    assert as_markdown([found, bad]).count("\n") == 4


@pytest.mark.parametrize(
    ("prompt", "answer", "counts"),
    [
        ("    def f(self):\n        if x", ":\n            return 1\n        retu", (1, 1)),
        ("x = [1,\n", "     2,\n", (1, 1)),
        ("def f(a):\n", "    return a a\n", (1, 0)),
        ("as well) is given,\n", "x = 1\n", (0, 0)),
    ],
)
def test_a_text_may_stop_anywhere_but_must_be_python(prompt, answer, counts) -> None:
    assert Parsed().and_then(prompt, answer) == counts


def test_a_family_has_its_modules() -> None:
    assert [f for f in Family if f.has("csv")] == [Family.ALL, Family.STDLIB]
    assert [f for f in Family if f.has("click.termui")] == [Family.ALL, Family.PACKAGES]
