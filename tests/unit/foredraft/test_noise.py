"""The shared noise: Gumbel(0,1), independent in each argument, the same bits everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foredraft.noise.gumbel import _log, gumbel
from foredraft.noise.streams import ACCEPT, DRAFT, RESIDUAL, stream_key, substream
from foredraft.noise.streams import uniform as uniform_of

# Every test is deterministic; at this level a good generator fails none of them.
ALPHA = 1e-4

# g(42, position, token) for positions 0, 1, 1000 and tokens 0, 1, 31999.
KNOWN = [
    ["0x1.5a22f07748546p+0", "0x1.32be4feed0fdfp-5", "-0x1.ece7ac4327280p-4"],
    ["-0x1.849d1049c3a0cp-4", "-0x1.2720195984194p-1", "0x1.645f8196706fep+1"],
    ["0x1.3b0566b581051p+2", "0x1.ed07133906d59p-1", "0x1.8b0a7ca72cf3ap+1"],
]
# Keys of (seed, position) (0, 0), (42, 7), (2^62, 2^20).
KEYS = [5197578548964807871, 735543021595016514, -1120011474811211943]


def uniform(noise: np.ndarray) -> np.ndarray:
    """The uniforms that the Gumbel noise was made of."""
    return np.exp(-np.exp(-noise))


def table(seed: int, positions: int, tokens: int) -> np.ndarray:
    return gumbel(seed, np.arange(positions), np.arange(tokens))


@pytest.mark.parametrize("seed", [0, 1, 12345, (1 << 64) - 1])
def test_each_axis_is_gumbel_distributed(seed: int) -> None:
    for noise in (
        gumbel(seed, np.array([7]), np.arange(50_000))[0],
        gumbel(seed, np.arange(50_000), np.array([7]))[:, 0],
        np.array([gumbel(s, np.array([3]), np.array([5]))[0, 0] for s in range(seed, seed + 5000)]),
    ):
        assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > ALPHA
        counts, _ = np.histogram(uniform(noise), bins=100, range=(0, 1))
        assert stats.chisquare(counts).pvalue > ALPHA


def pairs_are_independent(a: np.ndarray, b: np.ndarray) -> bool:
    """Chi-square of the joint histogram of two uniforms, and their correlation."""
    counts, _, _ = np.histogram2d(a, b, bins=16, range=((0, 1), (0, 1)))
    correlation = abs(np.corrcoef(a, b)[0, 1])
    return bool(
        stats.chisquare(counts.ravel()).pvalue > ALPHA and correlation < 5 / np.sqrt(len(a))
    )


@pytest.mark.parametrize("lag", [1, 2, 16, 64])
def test_neighbouring_positions_and_tokens_are_independent(lag: int) -> None:
    u = uniform(table(99, 300, 300))
    assert pairs_are_independent(u[lag:].ravel(), u[:-lag].ravel())
    assert pairs_are_independent(u[:, lag:].ravel(), u[:, :-lag].ravel())
    assert pairs_are_independent(u[lag:, lag:].ravel(), u[:-lag, :-lag].ravel())
    assert pairs_are_independent(u[lag:, :-lag].ravel(), u[:-lag, lag:].ravel())


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 63])
def test_seeds_that_differ_in_one_bit_are_independent(bit: int) -> None:
    u, v = uniform(table(5, 200, 200)), uniform(table(5 ^ (1 << bit), 200, 200))
    assert pairs_are_independent(u.ravel(), v.ravel())
    assert pairs_are_independent(u[1:].ravel(), v[:-1].ravel())


def test_gumbel_max_draws_from_the_distribution() -> None:
    p = np.array([0.5, 0.25, 0.125, 0.1, 0.02, 0.005])
    drawn = np.argmax(np.log(p) + gumbel(3, np.arange(100_000), np.arange(len(p))), axis=1)
    counts = np.bincount(drawn, minlength=len(p))
    assert stats.chisquare(counts, p * 100_000).pvalue > ALPHA


def test_known_values() -> None:
    """Pinned: other bits would change every sampled answer that was ever given."""
    got = gumbel(42, np.array([0, 1, 1000]), np.array([0, 1, 31_999]))
    assert [[float(x).hex() for x in row] for row in got] == KNOWN
    assert [stream_key(s, p) for s, p in ((0, 0), (42, 7), (1 << 62, 1 << 20))] == KEYS


def by_definition(seed: int, position: int, token: int) -> float:
    """The noise in plain integers and the library's logarithm, written apart from the module."""
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    key = mix(mix((seed + golden) & mask) ^ ((position * golden) & mask))
    u = ((mix((key + (token + 1) * golden) & mask) >> 12) + 0.5) / 2**52
    return -math.log(-math.log(u))


# The first seed whose sum with splitmix64's constant does not fit into 64 bits.
WRAPS = (1 << 64) - 0x9E3779B97F4A7C15


@given(st.integers(0, WRAPS - 1), st.integers(0, 1 << 20), st.integers(0, (1 << 31) - 1))
def test_the_noise_is_what_its_definition_says(seed: int, position: int, token: int) -> None:
    got = gumbel(seed, np.array([position]), np.array([token]))[0, 0]
    assert got == pytest.approx(by_definition(seed, position, token), abs=1e-10)


@pytest.mark.parametrize("seed", [WRAPS, (1 << 64) - 1])
def test_large_seeds_wrap_at_64_bits(seed: int) -> None:
    got = gumbel(seed, np.array([3]), np.array([5]))[0, 0]
    assert got == pytest.approx(by_definition(seed, 3, 5), abs=1e-10)


def test_a_few_tokens_cost_no_vocabulary() -> None:
    whole = gumbel(8, np.arange(4), np.arange(5000))
    few = np.array([4999, 0, 17, 17])
    assert np.array_equal(gumbel(8, np.array([2]), few)[0], whole[2, few])
    # Another set of tokens for each position.
    each = np.array([[1, 2], [3, 4], [5, 6], [7, 4998]])
    assert np.array_equal(gumbel(8, np.arange(4), each), np.take_along_axis(whole, each, axis=1))
    # Far beyond any table that would fit in memory.
    assert np.isfinite(gumbel(8, np.array([1 << 40]), np.array([1 << 31, (1 << 32) - 1]))).all()


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 20), st.integers(0, (1 << 31) - 1))
def test_every_value_is_finite_and_within_what_52_bits_allow(
    seed: int, position: int, token: int
) -> None:
    noise = gumbel(seed, np.array([position]), np.array([token]))[0, 0]
    assert -4 < noise < 37


def test_our_logarithm_is_accurate() -> None:
    x = np.exp(np.random.default_rng(0).uniform(-36, 37, 100_000))
    assert np.abs(_log(x, np.int64, np.float64) - np.log(x)).max() < 1e-12


def test_torch_gives_the_same_bits() -> None:
    torch = pytest.importorskip("torch")
    from foredraft.noise.gumbel import gumbel_of_hash, gumbel_torch, hash_torch

    tokens = np.concatenate([np.arange(2000), [31_999, (1 << 31) - 1]])
    for seed in (0, 42, (1 << 64) - 1):
        positions = np.array([0, 1, 513, 1 << 20])
        expected = gumbel(seed, positions, tokens)
        keys = torch.tensor([stream_key(seed, int(p)) for p in positions])[:, None]
        got = gumbel_torch(keys, torch.from_numpy(tokens))
        assert got.dtype == torch.float64
        assert np.array_equal(got.numpy().view(np.int64), expected.view(np.int64))
        # The noise grows with the hash, which the verifier's search relies on.
        bits = hash_torch(keys, torch.from_numpy(tokens))
        assert torch.equal(gumbel_of_hash(bits), got)
        order = bits[0].argsort()
        assert bool((got[0][order].diff() >= 0).all())


def test_torch_bits_do_not_depend_on_shape_or_threads() -> None:
    torch = pytest.importorskip("torch")
    from foredraft.noise.gumbel import gumbel_torch

    keys = torch.tensor([stream_key(7, p) for p in range(33)])[:, None]
    whole = gumbel_torch(keys, torch.arange(1001))
    for rows in (1, 2, 32):
        assert torch.equal(gumbel_torch(keys[:rows], torch.arange(1001)), whole[:rows])
    for width in (1, 3, 7, 1000):
        assert torch.equal(gumbel_torch(keys, torch.arange(width)), whole[:, :width])


def test_substreams_are_independent_of_each_other_and_of_the_shared_noise() -> None:
    seeds = [
        substream(7, purpose, prefix)
        for purpose in (DRAFT, ACCEPT, RESIDUAL)
        for prefix in range(300)
    ]
    assert len({7, *seeds}) == len(seeds) + 1
    assert all(0 <= seed < 1 << 64 for seed in seeds)
    draws = np.array([[uniform_of(seed, position) for position in range(40)] for seed in seeds])
    assert draws.min() > 0 and draws.max() < 1
    assert abs(draws.mean() - 0.5) < 4 / np.sqrt(12 * draws.size)
    # Neighbouring positions, prefixes and purposes do not follow each other.
    for a, b in (
        (draws[:, 1:], draws[:, :-1]),
        (draws[1:], draws[:-1]),
        (draws[300:], draws[:-300]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)
