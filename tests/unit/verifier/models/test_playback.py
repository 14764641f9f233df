"""A target that plays back what another decided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foredraft.errors import ConfigError
from foredraft.pacing.config import PaceConfig
from foredraft.pacing.recording import RecordedText, continuations
from foredraft.types import ModelInfo, SamplingParams
from tests.support.verifiers import (
    BLOCK,
    CountingModel,
    RandomModel,
    kv_of,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_pool import BlockPool
from verifier_service.models import numerics
from verifier_service.models.paced import PacedTarget, measured
from verifier_service.models.playback import PlaybackTarget, load_playback
from verifier_service.models.port import Segment, alloc
from verifier_service.rules.sampling import choose
from verifier_service.targets.engine import VerifierEngine

PROMPT = (5, 9, 33)
SAMPLED = SamplingParams(0.8, seed=7)
PACE = PaceConfig(
    weight_bytes=6e9,
    flops_per_token=1e9,
    kv_bytes_per_token=1e6,
    bandwidth=1e12,
    peak_flops=1e13,
    bandwidth_fraction=1,
    flops_fraction=1,
)


def decided(engine: VerifierEngine, sampling: SamplingParams, new: int) -> tuple[int, ...]:
    """Return what plain decoding makes of PROMPT."""
    handle = engine.open(opening(PROMPT, new=new, sampling=sampling))
    tokens = list(PROMPT)
    for number in range(new):
        verdict = verdict_of(engine, handle, round_after(tokens, number=number))
        tokens += verdict.next_tokens
    engine.close(handle)
    return tuple(tokens)


def playback(text: tuple[int, ...], sampling: SamplingParams) -> PlaybackTarget:
    """Return a target that plays back one text."""
    recorded = continuations([RecordedText(text, len(PROMPT), sampling.temperature, 0)])
    info = ModelInfo(100, 200, "", "exact", "scripted")
    return PlaybackTarget(info, recorded, BlockPool(1024 // BLOCK), BLOCK)


def engine_of(model: PlaybackTarget) -> VerifierEngine:
    return VerifierEngine(model, kv_of(model))


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED, SamplingParams(3.0, seed=1)])
def test_it_decides_what_was_recorded(sampling: SamplingParams) -> None:
    text = decided(make_engine(RandomModel()), sampling, 24)
    assert decided(engine_of(playback(text, sampling)), sampling, 24) == text


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED])
def test_trees_are_verified_and_kept_as_by_the_recorded_model(sampling: SamplingParams) -> None:
    model = RandomModel()
    text = decided(make_engine(model), sampling, 24)
    engines = [make_engine(model), engine_of(playback(text, sampling))]
    handles = [engine.open(opening(PROMPT, sampling=sampling)) for engine in engines]
    end = len(PROMPT)
    for number in range(6):
        a, b = text[end : end + 2]
        # The recorded tokens are the second branch's; on the first, everything is off the text.
        draft, parents = ((a + 1) % 100, 3, a, b), (-1, 0, -1, 2)
        asked = round_after(text[:end], draft, parents, number=number)
        verdicts = [
            verdict_of(engine, handle, asked)
            for engine, handle in zip(engines, handles, strict=True)
        ]
        assert [v.kept for v in verdicts] == [(2, 3)] * 2
        assert [v.next_tokens for v in verdicts] == [(text[end + 2],)] * 2
        end += 3


def test_it_is_row_invariant_and_off_its_texts_it_does_not_end() -> None:
    model = playback((*PROMPT, 1, 2), SamplingParams())
    assert numerics.measure(model) == "exact"
    blocks = alloc(model, 40)
    logits = model.forward([Segment(blocks, 0, list(range(40)), 40)])
    assert set(logits.argmax(-1)).isdisjoint(model.info.eos_token_ids)
    assert np.isfinite(logits).all()


def test_a_paced_models_costs_are_the_modelled_ones() -> None:
    pace = PACE.model_copy(update={"slowdown": 10})
    model, costs = measured(CountingModel(), pace, choose, 128)
    assert isinstance(model, PacedTarget)
    # A row's KV of 1 MB takes 1 us on the device; compute takes over at 60 rows.
    assert costs.seconds(1) == pytest.approx(0.06)
    assert costs.seconds(64) == pytest.approx(0.064)
    assert costs.seconds(128) == pytest.approx(0.128)
    assert costs.seconds(1, 1000) - costs.seconds(1) == pytest.approx(0.01, rel=0.02)
    assert model.gauges()["paced_passes"] == 0


def test_a_recording_goes_with_one_rank() -> None:
    config = VerifierConfig(model=Path(), recording=Path("r"), tensor_parallel=2)
    with pytest.raises(ConfigError, match="one rank"):
        load_playback(config)
