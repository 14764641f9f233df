"""Errors, limits, the prefix hash and strict configuration."""

from __future__ import annotations

import math

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft import errors, limits
from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash, hash_prefix
from foredraft.strict import StrictModel, parse
from foredraft.types import SamplingParams

tokens = st.lists(st.integers(0, (1 << 32) - 1), max_size=30)


def tree(cls: type[errors.ForedraftError]) -> list[type[errors.ForedraftError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in tree(child))]


def test_every_error_has_a_grpc_status_and_an_http_code_and_is_drawn_in_the_tree() -> None:
    for cls in tree(errors.ForedraftError):
        if cls.__module__ != errors.__name__:
            continue
        assert cls.grpc_status in grpc.StatusCode.__members__
        assert 400 <= cls.http_code < 600
        assert cls.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    "cls",
    [
        errors.InvalidRequest,
        errors.PrefixMismatch,
        errors.Overloaded,
        errors.Unavailable,
        errors.DeadlineExceeded,
        errors.CorruptModelOutput,
    ],
)
def test_an_error_comes_back_from_its_status(cls: type[errors.ForedraftError]) -> None:
    back = errors.from_status(cls.grpc_status, "why", "field")
    assert type(back) is cls
    assert (str(back), back.param) == ("why", "field")


def test_an_error_comes_back_from_the_type_in_an_answer() -> None:
    for status in (400, 401, 403, 429, 503, 504):
        [cls] = (each for each in vars(errors).values() if code_of(each) == status)
        back = errors.from_kind(cls.kind, "why", "field")
        assert type(back) is cls
        assert (str(back), back.param) == ("why", "field")


def code_of(thing: object) -> int | None:
    """The HTTP code of a class that has one of its own."""
    return vars(thing).get("http_code") if isinstance(thing, type) else None


def test_an_unknown_status_or_type_is_the_root() -> None:
    assert type(errors.from_status("DATA_GONE", "?")) is errors.ForedraftError
    assert type(errors.from_kind("", "?")) is errors.ForedraftError


@given(tokens, tokens)
def test_the_hash_of_a_prefix_is_chained(head: list[int], tail: list[int]) -> None:
    whole = hash_prefix(head + tail)
    assert whole == extend_hash(hash_prefix(head), tail)
    assert 0 <= whole < 1 << 64


@given(tokens, st.integers(0, 29), st.integers(0, (1 << 32) - 1))
def test_another_token_or_length_is_another_hash(prefix: list[int], at: int, token: int) -> None:
    assert hash_prefix([*prefix, token]) != hash_prefix(prefix)
    if at < len(prefix) and prefix[at] != token:
        assert hash_prefix([*prefix[:at], token, *prefix[at + 1 :]]) != hash_prefix(prefix)


def test_known_hashes() -> None:
    """Pinned: both sides of a rolling upgrade must agree."""
    assert hash_prefix(()) == EMPTY_PREFIX_HASH == 0x9E3779B97F4A7C15
    assert hash_prefix((0,)) == 0x171BCA57F77FDCCE
    assert hash_prefix((1, 2, 3, 31_999)) == 0x65F3295F982410DC


def test_short_prefixes_do_not_collide() -> None:
    seen = {hash_prefix((a, b)) for a in range(300) for b in range(300)}
    seen |= {hash_prefix((a,)) for a in range(300)}
    assert len(seen) == 300 * 300 + 300


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 101.0),
        ("temperature", 1e-320),
        ("temperature", 9e-6),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_k", 11),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        limits.check_sampling(SamplingParams(**{field: value}), vocab_size=10)
    assert refused.value.param == field


@pytest.mark.parametrize(
    "good",
    [
        SamplingParams(),
        SamplingParams(temperature=100, top_k=10, top_p=1e-9, min_p=1, seed=(1 << 64) - 1),
    ],
)
def test_sampling_at_its_limits_passes(good: SamplingParams) -> None:
    limits.check_sampling(good, vocab_size=10)


def test_tokens_outside_the_vocabulary_are_refused_by_name() -> None:
    limits.check_tokens("prompt", (), 10)
    limits.check_tokens("prompt", (0, 9), 10)
    for bad in ((10,), (3, -1), (0, 1 << 40)):
        with pytest.raises(errors.InvalidRequest, match=r"prompt has token id"):
            limits.check_tokens("prompt", bad, 10)


class _Leaf(StrictModel):
    size: int = 1


class _Root(StrictModel):
    leaf: _Leaf = _Leaf()


def test_configuration_is_strict_frozen_and_names_the_path() -> None:
    assert parse(_Root, {"leaf": {"size": 2}}).leaf.size == 2
    for values, path in (
        ({"leaf": {"sise": 2}}, "leaf.sise"),
        ({"leaf": {"size": "many"}}, "leaf.size"),
        ({"root": 1}, "root"),
        (3, "configuration"),
    ):
        with pytest.raises(errors.ConfigError) as refused:
            parse(_Root, values)
        assert refused.value.param == path
    with pytest.raises(ValueError, match="frozen"):
        parse(_Root, {}).leaf = _Leaf()  # type: ignore[misc]
