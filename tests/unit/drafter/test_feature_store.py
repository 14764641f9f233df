"""Which features are kept, and which tokens they let a drafter cache."""

import pytest

from drafter_service.feature_store import FeatureStore
from foredraft.errors import InvalidRequest

WIDTH = 2


def rows(*tokens: int) -> bytes:
    """Features that name their token."""
    return b"".join(bytes((token, 0, token, 0)) for token in tokens)


def test_without_a_lag_a_token_reads_its_own():
    store = FeatureStore(WIDTH)
    store.assign(0, 3, rows(0, 1, 2))
    assert [store.known(length) for length in (2, 3, 4)] == [2, 3, 3]
    assert store.of(1, 3) == rows(1, 2)


def test_with_a_lag_a_token_reads_those_of_the_one_before():
    store = FeatureStore(WIDTH, lag=1)
    store.assign(0, 3, rows(0, 1, 2))
    # The fourth token's row reads the third one's.
    assert [store.known(length) for length in (3, 4, 5)] == [3, 4, 4]
    assert store.of(0, 4) == rows(0, 1, 2)
    assert store.of(2, 4) == rows(1, 2)
    assert store.of(0, 1) == b""


def test_a_cut_back_prefix_keeps_what_is_still_right():
    store = FeatureStore(WIDTH, lag=1)
    store.assign(0, 3, rows(0, 1, 2))
    store.assign(2, 4, rows(7, 8))
    assert store.of(0, 5) == rows(0, 1, 7, 8)


def test_others_than_those_due_are_refused_and_change_nothing():
    store = FeatureStore(WIDTH, lag=1)
    store.assign(0, 2, rows(0, 1))
    with pytest.raises(InvalidRequest, match="features of 2 tokens"):
        store.assign(2, 4, rows(2))
    assert store.of(0, 3) == rows(0, 1)


def test_a_drafter_that_reads_none_can_cache_everything():
    store = FeatureStore(0)
    store.assign(0, 9, b"")
    assert store.known(9) == 9
