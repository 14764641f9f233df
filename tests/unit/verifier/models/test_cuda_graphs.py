"""Passes over fixed arrays, with the work called again where a GPU would replay it."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foredraft.errors import ConfigError
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import fitting, load_target
from verifier_service.models.attention.flex import FlexAttention
from verifier_service.models.attention.reference import MatmulAttention
from verifier_service.models.cuda_graphs import MOST_ROWS, CallAgain, GraphedForward
from verifier_service.models.paged import PagedModel, warm_up
from verifier_service.models.port import Segment, alloc
from verifier_service.models.transformers_forward import TransformersForward, kv_shape, load_model

CPU = torch.device("cpu")
TEXT = np.random.default_rng(0).integers(0, 256, 200).tolist()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("qwen2"), "qwen2")


def masked(q, keys, values, place, table, root, seen, count, first, branch, *, block_tokens, scale):
    """What the kernel computes, out of the plan's arrays, in operations that a mode can watch."""
    group = q.shape[2] // root.shape[1]
    at = torch.arange(keys.shape[2])
    block = at // block_tokens
    number = place[block]
    at = number * block_tokens + at % block_tokens
    own = table[:, number.clamp(min=0)] == block
    node = at - root[..., None]
    words = branch.gather(2, (node >> 5).clamp(0, branch.shape[2] - 1).long())
    on_branch = (node >= 0) & (((words >> (node & 31)) & 1) == 1)
    before = (node < 0) & (at >= first[..., None])
    visible = (number >= 0) & own[:, None] & (on_branch | before)
    visible = visible.repeat_interleave(group, 1)[:, None]
    scores = (q @ keys.transpose(2, 3) * scale).masked_fill(~visible, float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0) @ values


@pytest.fixture(scope="module")
def loaded(checkpoint):
    return load_model(checkpoint, dtype=torch.float32, device="cpu", quantize=lambda model: None)


def paged(loaded, recorder=None) -> PagedModel:
    """The model over masked tiles, recorded if there is a recorder."""
    attention = FlexAttention((), 256, masked)
    forward = TransformersForward(loaded, attention)
    shape = kv_shape(loaded.config, torch.float32, CPU)
    if recorder is not None:
        forward = GraphedForward(forward, attention, recorder, vocabulary=256, device=CPU)
    info = load_target(VerifierConfig(model=loaded.name_or_path, dtype="fp32")).info
    return PagedModel(forward, attention, shape, info, kv_tokens=4096, block_tokens=64)


class Watch(TorchDispatchMode):
    """Notes the operations that read a value on the host, or bring one from there."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::lift_fresh"):
            self.noted.append(name)
        return func(*args, **kwargs or {})


class Counting(CallAgain):
    """Notes what is recorded, and that nothing in it needs the host."""

    def __init__(self) -> None:
        self.recorded = 0
        self.watch = Watch()

    def record(self, work):
        self.recorded += 1

        def watched() -> None:
            with self.watch:
                work()

        return watched


def test_the_watch_sees_what_needs_the_host():
    watch = Watch()
    with watch:
        torch.tensor([1, 0]).nonzero()
        torch.zeros(1).item()
    assert len(watch.noted) == 3


def passes(model) -> list[np.ndarray]:
    """Run passes of many kinds, large ones before small ones of the same shape."""
    one, other, third = alloc(model, 192), alloc(model, 192), alloc(model, 192)
    tree = (-1, 0, 0, 2, -1, 4, 1, 6)
    found = [
        model.forward([Segment(one, 0, TEXT[:120], 3), Segment(other, 0, TEXT[20:30], 10)]),
        model.forward([Segment(one, 120, TEXT[:17], 17), Segment(other, 10, TEXT[:17], 17)]),
        model.forward([Segment(one, 119, TEXT[:10], 10), Segment(other, 10, TEXT[:12], 1)]),
        model.forward([Segment(other, 10, TEXT[:9], 8, tree)]),
        model.forward([Segment(other, 10, TEXT[3:12], 9)]),
        model.forward([Segment(other, 10, TEXT[3:10], 2, tree[:5])]),
        model.forward([Segment(third, 0, TEXT[:70], 0)]),
        model.forward([Segment(third, 69, TEXT[:1], 1)]),
        model.forward([Segment(one, 50, TEXT[:1], 1)]),
    ]
    model.keep(other, 11, [0, 2, 3])
    found.append(model.forward([Segment(other, 14, TEXT[:5], 5), Segment(one, 51, TEXT[:2], 2)]))
    for table in (one, other, third):
        model.pool.give(table)
    return found


def reference(loaded) -> list[np.ndarray]:
    attention = MatmulAttention()
    info = load_target(VerifierConfig(model=loaded.name_or_path, dtype="fp32")).info
    shape = kv_shape(loaded.config, torch.float32, CPU)
    forward = TransformersForward(loaded, attention)
    return passes(PagedModel(forward, attention, shape, info, kv_tokens=4096, block_tokens=64))


def test_recorded_passes_equal_others(loaded):
    recorder = Counting()
    model = paged(loaded, recorder)
    first = passes(model)
    recorded = recorder.recorded
    again = passes(model)
    assert 0 < recorder.recorded == recorded
    # Nothing in a recorded pass reads a value or brings one, not even a number.
    assert not recorder.watch.noted
    for mine, second, plain, theirs in zip(
        first, again, passes(paged(loaded)), reference(loaded), strict=True
    ):
        assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine, second)
        np.testing.assert_allclose(mine, plain, atol=2e-5)
        np.testing.assert_allclose(mine, theirs, atol=2e-5)


def test_logits_stay_when_the_next_pass_runs(loaded):
    model = paged(loaded, CallAgain())
    table = alloc(model, 64)
    logits = model.forward([Segment(table, 0, TEXT[:5], 5)])
    kept = logits.copy()
    model.forward([Segment(table, 0, TEXT[5:10], 5)])
    assert np.array_equal(logits, kept)


def test_nothing_of_a_larger_batch_reaches_a_smaller_one(loaded):
    """Blocks, branches and rows that an earlier batch of the same shape had are gone."""
    recorder = Counting()
    fresh, used = paged(loaded, CallAgain()), paged(loaded, recorder)
    tables = [alloc(used, 192) for _ in range(4)]
    used.forward([Segment(table, 0, TEXT[:150], 0) for table in tables])
    before = recorder.recorded
    tree = (-1, -1, 0, 1, 2, 3, *range(5, 15))
    used.forward([Segment(table, 150, TEXT[:17], 17, tree) for table in tables])
    small = [(TEXT[30:47], 17), (TEXT[50:60], 2), (TEXT[60:69], 1)]
    expected, found = (
        model.forward([Segment(alloc(model, 128), 0, tokens, wanted) for tokens, wanted in small])
        for model in (fresh, used)
    )
    assert recorder.recorded == before + 1
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_large_passes_are_not_recorded(loaded):
    recorder = Counting()
    model = paged(loaded, recorder)
    tables = [alloc(model, 200) for _ in range(4)]
    model.forward([Segment(table, 0, TEXT[:161], 1) for table in tables])
    assert MOST_ROWS < 4 * 161
    assert recorder.recorded == 0


@pytest.mark.slow
def test_all_shapes_are_recorded_before_a_session_waits(loaded):
    recorder = Counting()
    model = paged(loaded, recorder)
    warm_up(model, model.batches(40))
    recorded = recorder.recorded
    assert recorded > 10
    tables = [alloc(model, 64) for _ in range(12)]
    draw = random.Random(0)
    for _ in range(60):
        sessions = draw.randint(1, 12)
        ends = [*sorted(draw.sample(range(1, 40), sessions - 1)), 40]
        counts = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
        model.forward(
            [
                Segment(table, 0, TEXT[:count], 1)
                for table, count in zip(tables, counts, strict=False)
            ]
        )
    assert recorder.recorded == recorded


def test_where_recording_fails_passes_run_all_the_same(loaded, caplog):
    class Failing:
        def record(self, work):
            raise RuntimeError("operation not permitted when stream is capturing")

    with caplog.at_level(logging.WARNING):
        found = passes(paged(loaded, Failing()))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not permitted" in caplog.text
    for mine, theirs in zip(found, reference(loaded), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)


def test_a_pool_that_does_not_fit_names_its_key(checkpoint):
    def too_large():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ConfigError, match="4096 tokens") as caught:
        fitting(VerifierConfig(model=checkpoint, kv_tokens=4096), too_large)
    assert caught.value.param == "kv_tokens"
