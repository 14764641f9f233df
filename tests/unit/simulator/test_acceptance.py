"""How right simulated drafts are."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.pacing.config import Work
from foredraft_simulator.acceptance.by_depth import ByDepth
from foredraft_simulator.acceptance.luck import normal, uniform
from foredraft_simulator.models.drafter import block_of
from foredraft_simulator.models.texts import right
from foredraft_simulator.scenario.passes import CurveConfig


def test_draft_tokens_are_accepted_as_often_as_configured() -> None:
    model = ByDepth((0.8, 0.5), 0.0, 0.0, 0.5, seed=3)
    drafts = [model.draft(request, 0, 3) for request in range(4000)]
    kept = [fmean(draft.kept[node] for draft in drafts) for node in range(3)]
    assert kept == pytest.approx([0.8, 0.4, 0.2], abs=0.03)
    assert drafts[0].expected == pytest.approx([0.8, 0.4, 0.2])
    assert drafts[0].last == pytest.approx([0.2, 0.4, 0.2, 0.2])


@given(st.integers(0, 99), st.integers(0, 999), st.integers(1, 16), st.integers(1, 16))
def test_a_longer_draft_begins_like_a_shorter_one(
    request: int, offset: int, short: int, more: int
) -> None:
    model = ByDepth((0.7,), 0.5, 0.5, 0.5, seed=1)
    one, other = model.draft(request, offset, short), model.draft(request, offset, short + more)
    assert other.kept[:short] == one.kept
    assert all(a >= b for a, b in zip(other.expected, other.expected[1:], strict=False))
    assert sum(other.last) == pytest.approx(1.0)


def test_spread_differs_by_request_and_the_drafter_knows_it() -> None:
    model = ByDepth((0.6,), 1.0, 0.0, 0.5, seed=1)
    estimates = [model.draft(request, 0, 1).expected[0] for request in range(400)]
    assert min(estimates) < 0.4 < 0.8 < max(estimates)
    assert model.draft(5, 0, 1).expected == model.draft(5, 77, 1).expected


def test_luck_is_a_function_of_its_names() -> None:
    draws = [uniform(7, name) for name in range(2000)]
    assert fmean(draws) == pytest.approx(0.5, abs=0.02)
    assert uniform(7, 3) == draws[3] != uniform(8, 3)
    assert fmean(normal(7, name) ** 2 for name in range(2000)) == pytest.approx(1.0, abs=0.1)


@given(st.integers(0, 50), st.integers(1, 12))
def test_the_right_tokens_of_a_block_are_its_kept_ones(request: int, nodes: int) -> None:
    drawn = ByDepth((0.7,), 0.0, 0.0, 0.5, seed=2).draft(request, 0, nodes)
    block = block_of(drawn, 100)
    places = [node for node, kept in enumerate(drawn.kept) if kept]
    assert [block.tokens[node] for node in places] == [
        right(100 + depth) for depth in range(len(places))
    ]


@pytest.mark.parametrize(("rows", "seconds"), [(1, 1.0), (2, 1.5), (3, 2.0), (5, 3.0)])
def test_a_curve_goes_on_as_it_ends(rows: int, seconds: float) -> None:
    curve = CurveConfig(rows=(1, 3), seconds=(1.0, 2.0), context_s=0.1, session_s=0.2)
    assert curve.pass_s(Work(rows, 0, 1)) == pytest.approx(seconds)
    assert curve.pass_s(Work(rows, 10, 3)) == pytest.approx(seconds + 1.0 + 0.4)
