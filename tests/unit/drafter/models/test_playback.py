"""A drafter that plays back what another proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.paced.record import drafts
from drafter_service.models.embedded.linear import FloatLinear
from drafter_service.models.paced import PacedDrafter
from drafter_service.models.playback import PlaybackDrafter, load_playback
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import ConfigError
from foredraft.pacing.config import PaceConfig
from foredraft.pacing.pacer import Pacer, SteppedClock
from foredraft.pacing.recording import DRAFTER, RecordedText, Recording, write
from foredraft.types import SamplingParams
from tests.support.embedded_drafter import CONFIG, TEXT, served

TEXTS = [RecordedText(tuple(TEXT), 4, 0.0, 1), RecordedText(tuple(TEXT[1:7]), 3, 0.8, 1)]


def playback(tmp_path: Path) -> PlaybackDrafter:
    """Return the playback of the small drafter along TEXTS, in 2 and in 5 slots."""
    path, model = tmp_path / "recording", served(FloatLinear)
    write(path, TEXTS, drafts(model, TEXTS, (2, 5)), {DRAFTER: "d"})
    recording = Recording(path, DRAFTER, "d", "d", CONFIG.vocab_size)
    return load_playback(model.capabilities, recording)


def same(one: BlockScores, other: BlockScores) -> None:
    assert (one.tokens == other.tokens).all()
    assert one.log_q == pytest.approx(other.log_q, abs=1e-4)
    assert one.edge is not None and other.edge is not None
    # Recorded in half precision.
    assert one.edge == pytest.approx(other.edge, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("slots", [2, 5])
def test_it_proposes_what_was_recorded_however_the_prefix_came(tmp_path: Path, slots: int) -> None:
    played, model = playback(tmp_path), served(FloatLinear)
    for text in TEXTS:
        for end in range(text.prompt_len, len(text.tokens)):
            drawn = SamplingParams(text.temperature, seed=text.seed)
            whole = BlockRequest(3, 0, text.tokens[:end], slots, sampling=drawn)
            split = replace(whole, slot=2, start=end - 1, tokens=text.tokens[end - 1 : end])
            [expected] = model.draft([whole])
            played.draft([BlockRequest(2, 0, text.tokens[: end - 1], 0)])
            for found in played.draft([whole, split]):
                same(found, expected)


def test_a_branch_goes_on_from_another_slots_prefix(tmp_path: Path) -> None:
    played = playback(tmp_path)
    [whole] = played.draft([BlockRequest(0, 0, TEXT[:7], 5)])
    own = BlockRequest(1, 0, TEXT[:6], 5)
    _, branch = played.draft([own, BlockRequest(3, 5, TEXT[5:7], 5, prefix_slot=1)])
    same(branch, whole)


def test_a_block_between_two_recorded_ones_begins_as_the_longer(tmp_path: Path) -> None:
    played = playback(tmp_path)
    [shorter, longer] = [played.draft([BlockRequest(0, 0, TEXT[:5], n)])[0] for n in (3, 5)]
    assert shorter.edge is not None and longer.edge is not None
    assert (shorter.tokens == longer.tokens[:3]).all()
    assert (shorter.edge == longer.edge[:3]).all()
    assert played.capabilities.max_mask_slots == 5


def test_off_the_recorded_texts_it_proposes_all_the_same(tmp_path: Path) -> None:
    [found] = playback(tmp_path).draft([BlockRequest(0, 0, (60, 61), 5)])
    assert np.isfinite(found.log_q).all() and (found.tokens < CONFIG.vocab_size).all()


def test_drafts_of_other_texts_are_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "recording", served(FloatLinear)
    write(path, TEXTS, drafts(model, TEXTS[:1], (2,)), {DRAFTER: "d"})
    recording = Recording(path, DRAFTER, "d", "d", CONFIG.vocab_size)
    with pytest.raises(ConfigError, match="do not fit"):
        load_playback(model.capabilities, recording)
    reads = replace(model.capabilities, features_hash="f")
    with pytest.raises(ConfigError, match="features"):
        load_playback(reads, recording)


def test_a_paced_drafter_takes_the_modelled_time(tmp_path: Path) -> None:
    pace = PaceConfig(
        weight_bytes=1,
        flops_per_token=1,
        kv_bytes_per_token=0,
        bandwidth=1000,
        peak_flops=1,
        flops_fraction=1,
    )
    clock = SteppedClock()
    drafter = PacedDrafter(playback(tmp_path), Pacer(pace, clock.now, clock.sleep))
    drafter.draft([BlockRequest(0, 0, TEXT[:5], 3), BlockRequest(1, 0, TEXT[:2], 2)])
    assert clock.now() == pytest.approx(12)
    drafter.draft([BlockRequest(0, 0, TEXT[:5], 0)])
    found = drafter.gauges()
    assert found["paced_rounds"] == 2
    assert found["prefill_s"] == pytest.approx(5)
