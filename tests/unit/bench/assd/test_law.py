"""Texts that share forward passes are those of one by one, and what is compared of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.assd.algorithm_1 import KeyedChance, rejection
from bench.assd.in_step import in_step
from bench.assd.judge import Judge
from bench.assd.law import as_markdown, compare
from bench.assd.paged import PagedJoint
from bench.assd.port import Decoded
from bench.assd.texts import Masked
from foredraft.layout import Layout
from foredraft.types import SamplingParams
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.models import numerics
from verifier_service.models.port import Segment, TargetModel
from verifier_service.targets.engine import VerifierEngine

LENGTH = 20
pytestmark = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("any"), any_subset={"mask_token_id": 1})


@pytest.fixture(scope="module")
def engine(folder: Path) -> VerifierEngine:
    return load_engine(VerifierConfig(model=folder, kv_tokens=4096))


def texts(count: int) -> list[Masked]:
    random = np.random.default_rng(0)
    found = []
    for seed in range(count):
        positions = np.sort(random.choice(LENGTH, 3, replace=False)).tolist()
        given = tuple(random.integers(2, 200, 3).tolist())
        found.append(Masked(f"m{seed % 12}", Layout(LENGTH, tuple(positions)), given, seed))
    return found


def filled(model: TargetModel, text: Masked) -> Decoded:
    joint = PagedJoint(model, LENGTH, 1)
    found = rejection(
        joint, text.layout, text.given, SamplingParams(1.0), 3, KeyedChance(text.seed)
    )
    joint.close()
    return found


def test_shared_passes_change_no_text(engine: VerifierEngine) -> None:
    model, found = engine.model, texts(7)
    alone = [filled(model, text) for text in found]
    programs = [lambda shared, text=text: filled(shared, text) for text in found]
    assert in_step(model, programs, width=3) == alone
    assert in_step(model, programs[:2], width=8) == alone[:2]
    assert model.pool.available == model.pool.total


def test_a_failed_pass_ends_all_that_wait_for_it(engine: VerifierEngine) -> None:
    ended: list[int] = []

    def without_blocks(shared: TargetModel) -> None:
        try:
            shared.forward([Segment([], 0, [5], 1)])
        finally:
            ended.append(1)

    with pytest.raises(ValueError, match="rows, 0 of them a tree"):
        in_step(engine.model, [without_blocks] * 3, width=3)
    assert len(ended) == 3


def test_one_program_fails_and_the_others_end(engine: VerifierEngine) -> None:
    text, done = texts(1)[0], []

    def fails(shared: TargetModel) -> Decoded:
        raise ValueError("no such text")

    def ends(shared: TargetModel) -> Decoded:
        done.append(filled(shared, text))
        return done[-1]

    with pytest.raises(ValueError, match="no such text"):
        in_step(engine.model, [ends, fails, ends], width=3)
    assert done == [filled(engine.model, text)] * 2


def test_ways_are_compared(folder: Path, engine: VerifierEngine) -> None:
    judge_folder = folder.parent / "judge"
    judge = Judge(load_engine(VerifierConfig(model=write_tiny(judge_folder), kv_tokens=4096)))
    lines: list[str] = []
    plain, drafted = compare(engine.model, judge, texts(24), 3, lines.append)
    assert (plain.way, drafted.way) == ("sequential", "Algorithm 1, k=3")
    assert plain.calls_share.value == plain.ratio.value == 1.0
    assert drafted.calls_share.value < 1.0 < drafted.tokens_per_iteration.value
    assert drafted.ratio.value == pytest.approx(drafted.perplexity.value / plain.perplexity.value)
    assert plain.alike == "-" and drafted.alike.count(",") == 1
    assert as_markdown([plain, drafted]).count("\n") == 4 and len(lines) == 2
