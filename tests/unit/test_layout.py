"""Layouts: positions by order, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.codec.verifier import verify_open_from_pb, verify_open_to_pb
from foredraft.errors import InvalidRequest
from foredraft.layout import Layout
from foredraft.v1 import verifier_pb2
from tests.support.verifiers import opening


def test_the_prompt_comes_first_then_the_holes_from_left_to_right():
    assert Layout(6, (1, 4)).positions == (1, 4, 0, 2, 3, 5)
    assert Layout(4, (0, 1)).positions == (0, 1, 2, 3)


@given(st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_every_position_has_one_order(length_and_given):
    length, prompt = length_and_given
    if not 0 < len(prompt) < length:
        return
    layout = Layout(length, tuple(sorted(prompt)))
    assert sorted(layout.positions) == list(range(length))
    assert set(layout.positions[: len(prompt)]) == prompt
    assert sorted(layout.positions[len(prompt) :]) == list(layout.positions[len(prompt) :])


@pytest.mark.parametrize(
    ("length", "positions", "field"),
    [
        (4, (), "layout.given"),
        (4, (1, 1), "layout.given"),
        (4, (2, 1), "layout.given"),
        (4, (-1, 1), "layout.given"),
        (4, (1, 4), "layout.given"),
        (2, (0, 1), "layout.length"),
    ],
)
def test_what_is_no_layout_is_refused_by_name(length, positions, field):
    with pytest.raises(InvalidRequest) as refused:
        Layout(length, positions)
    assert refused.value.param == field


def test_layouts_travel_and_are_checked_on_arrival():
    message = verify_open_to_pb(opening())
    assert verify_open_from_pb(message).layout is None
    message.layout.CopyFrom(verifier_pb2.Layout(length=9, given=(0, 1, 7)))
    found = verify_open_from_pb(message)
    assert found.layout == Layout(9, (0, 1, 7))
    assert verify_open_to_pb(found) == message
    for bad, field in (
        (verifier_pb2.Layout(), "layout.length"),
        (verifier_pb2.Layout(length=2**31, given=(0,)), "layout.length"),
        (verifier_pb2.Layout(length=9), "layout.given entries"),
        (verifier_pb2.Layout(length=2, given=(0, 1)), "layout.given entries"),
        (verifier_pb2.Layout(length=9, given=(3, 2)), "layout.given"),
    ):
        message.layout.CopyFrom(bad)
        with pytest.raises(InvalidRequest) as refused:
            verify_open_from_pb(message)
        assert refused.value.param == field
