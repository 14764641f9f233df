"""The target's choice: against the unpruned definition, as a distribution, and row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from foredraft_kernels.loader import load_kernels
from tests.support.examples import examples
from verifier_service.models.compiled.sampling import best_argmax, best_choice
from verifier_service.rules.sampling import HEAD_NATS, RowSampling, choose, gumbel_argmax, process

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-4, 0.3, 0.8, 1.0, 5.0, 100.0]),
    top_k=st.sampled_from([0, 1, 3, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)


def oracle(logits: np.ndarray, draw: RowSampling) -> int:
    """The definition, with noise for the whole vocabulary and nothing pruned."""
    sampling, position = draw
    if sampling.temperature == 0:
        return int(logits.argmax())
    z = logits.astype(np.float64)
    z = (z - z.max()) / sampling.temperature
    ids = np.arange(z.size)
    kept = z >= math.log(sampling.min_p) if sampling.min_p else np.ones(z.size, bool)
    if sampling.top_k:
        kept &= z >= np.sort(z[kept])[::-1][: sampling.top_k][-1]
    if sampling.top_p < 1:
        order = sorted(ids[kept], key=lambda v: (-z[v], v))
        mass, total, nucleus = 0.0, np.exp(z[kept]).sum(), []
        for v in order:
            nucleus.append(v)
            mass += math.exp(z[v])
            if mass >= sampling.top_p * total:
                break
        kept = np.isin(ids, nucleus)
    noise = gumbel(sampling.seed, np.array([position]), ids)[0]
    return int(np.where(kept, z + noise, -np.inf).argmax())


@examples(150)
@given(
    st.lists(PARAMS, min_size=1, max_size=5),
    st.sampled_from([2, 17, 300]),
    st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    st.integers(0, 2**31),
)
def test_equals_the_definition_in_mixed_batches(params, vocabulary, scale, state):
    rng = np.random.default_rng(state)
    logits = (rng.normal(size=(len(params), vocabulary)) * scale).astype(np.float32)
    logits[rng.random(logits.shape) < 0.1] = -np.inf
    logits[:, 0] = 1.0
    draws = [RowSampling(sampling, int(rng.integers(0, 10000))) for sampling in params]
    together = choose(logits, draws)
    assert together == [oracle(row, draw) for row, draw in zip(logits, draws, strict=True)]
    alone = [choose(logits[i : i + 1], [draw])[0] for i, draw in enumerate(draws)]
    assert together == alone
    assert together == choose(logits, draws, best_argmax())
    assert together == best_choice()(logits, draws)
    # Columns beside them, as a forward's padding is.
    padded = np.pad(logits, ((0, 0), (0, 5)), constant_values=np.nan)[:, :vocabulary]
    assert together == best_choice()(padded, draws)


def test_pruning_loses_nothing_on_a_real_vocabulary():
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.5, 2.0, 8.0):
        logits = (rng.normal(size=(24, 4096)) * scale).astype(np.float32)
        draws = [RowSampling(SamplingParams(temperature=1.0, seed=i), 7 * i) for i in range(24)]
        expected = [oracle(row, draw) for row, draw in zip(logits, draws, strict=True)]
        assert choose(logits, draws) == expected
        assert choose(logits, draws, best_argmax()) == expected
        assert best_choice()(logits, draws) == expected


@pytest.mark.parametrize("most", [0.0, HEAD_NATS, 27.7, -3e4])
def test_tokens_at_the_edge_of_the_head_are_drawn_once(most):
    """They get noise in one of two passes, however their differences are rounded."""
    logits = np.full((1, 3000), np.float32(most) - np.float32(HEAD_NATS), np.float32)
    logits[0, 7] = most
    for seed in range(100):
        draws = [RowSampling(SamplingParams(temperature=1.0, seed=seed), 3)]
        assert best_choice()(logits, draws) == [oracle(logits[0], draws[0])]


@pytest.mark.skipif(load_kernels() is None, reason="the native kernels were not built")
def test_a_near_tie_is_left_to_the_reference():
    draws = [RowSampling(SamplingParams(temperature=1.0, seed=4), 9)]
    noise = gumbel(4, np.array([9]), np.arange(3))[0]
    # All three scores are equal up to rounding.
    z = (noise.min() - noise)[None] * 1.0
    assert best_argmax()(z, draws) == gumbel_argmax(z, draws)
    # As close as logits can be.
    logits = (noise.min() - noise)[None].astype(np.float32)
    assert best_choice()(logits, draws) == choose(logits, draws)
    same = np.zeros((1, 3), dtype=np.float32)
    assert best_choice()(same, draws) == choose(same, draws)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0),
        pytest.param(SamplingParams(temperature=0.6, top_k=5), marks=pytest.mark.slow),
        pytest.param(SamplingParams(temperature=1.3, top_p=0.8), marks=pytest.mark.slow),
        pytest.param(SamplingParams(temperature=1.0, min_p=0.1), marks=pytest.mark.slow),
    ],
)
def test_draws_follow_the_processed_distribution(sampling):
    count, vocabulary = 100_000, 12
    logits = np.random.default_rng(5).normal(size=(1, vocabulary)).astype(np.float32) * 1.5
    draws = [
        RowSampling(
            SamplingParams(
                sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, seed=i % 50
            ),
            i,
        )
        for i in range(count)
    ]
    z = process(logits, draws[:1])[0]
    p = np.exp(z) / np.exp(z).sum()
    rows = np.repeat(logits, count, axis=0)
    chosen = choose(rows, draws)
    some = slice(0, 10_000)
    assert best_choice()(rows[some], draws[some]) == chosen[some]
    observed = np.bincount(np.array(chosen), minlength=vocabulary)
    assert observed[p == 0].sum() == 0
    assert stats.chisquare(observed[p > 0], count * p[p > 0]).pvalue > 1e-4


@pytest.mark.parametrize("bad", ["nan", "inf", "nothing"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_unusable_row_spoils_no_other(bad, temperature):
    logits = np.random.default_rng(3).normal(size=(3, 50)).astype(np.float32)
    draws = [RowSampling(SamplingParams(temperature=temperature, seed=1), i) for i in range(3)]
    expected = choose(logits, draws)
    logits[1] = {"nan": logits[1], "inf": logits[1], "nothing": -np.inf}[bad]
    if bad != "nothing":
        logits[1, 30] = float(bad)
    for chosen in (choose(logits, draws), best_choice()(logits, draws)):
        assert chosen == [expected[0], None, expected[2]]


def test_equal_logits_go_to_the_lowest_id():
    logits = np.zeros((1, 8), dtype=np.float32)
    for each in (choose, best_choice()):
        assert each(logits, [RowSampling(SamplingParams(), 0)]) == [0]
    kept = (
        process(logits, [RowSampling(SamplingParams(temperature=1.0, top_p=0.3), 0)])[0] > -np.inf
    )
    assert kept.tolist() == [True] * 3 + [False] * 5


def test_no_rows():
    for each in (choose, best_choice()):
        assert each(np.zeros((0, 8), dtype=np.float32), []) == []
