"""Which sessions share a call: within the budget, states before drafts, prompts not starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from denoiser_service.schedule import Granted, Wanted, schedule

L = 4
sessions = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=8)


def scheduled(work, budget=32, prefill=8):
    wanted = [Wanted(key, L * blocks, (L,) * states) for key, (blocks, states) in enumerate(work)]
    return schedule(wanted, block_length=L, row_budget=budget, prefill_rows=prefill)


@given(sessions, st.integers(2, 60), st.integers(1, 30))
def test_a_call_keeps_to_the_budget_and_to_what_is_wanted(work, budget, prefill):
    granted = scheduled(work, budget, prefill)
    rows = [each.read + L * each.states for each in granted]
    assert sum(rows) <= budget or len(granted) == 1
    assert len({each.key for each in granted}) == len(granted)
    for key, read, states in granted:
        blocks, most = work[key]
        assert read + states > 0 and read <= L * blocks and read % L == 0 and states <= most
        assert not states or read == L * blocks
    assert bool(granted) == any(blocks or states for blocks, states in work)


def test_every_state_goes_before_any_draft():
    assert scheduled([(0, 4), (1, 4), (0, 1)], budget=24) == [
        Granted(0, 0, 3),
        Granted(1, L, 1),
        Granted(2, 0, 1),
    ]


def test_a_draft_of_two_blocks_takes_the_room_of_two():
    wanted = [Wanted(0, 0, (L, 2 * L, L)), Wanted(1, 0, (L, L, 2 * L))]
    granted = [
        [each.states for each in schedule(wanted, block_length=L, row_budget=rows, prefill_rows=0)]
        for rows in (8, 12, 16, 20, 24, 28, 32)
    ]
    assert granted == [[1, 1], [1, 2], [2, 1], [3, 1], [3, 2], [3, 2], [3, 3]]


def test_prompts_have_a_part_of_the_budget():
    assert scheduled([(0, 1)] * 9 + [(9, 1)], budget=16, prefill=8)[2:] == [Granted(9, 8, 0)]
    assert scheduled([(9, 1)], budget=2) == [Granted(0, L, 0)]
