"""Drafting in another model's tokens: vocabularies by hand with exact drafts, and trained ones."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_service.bridge.bridged import BridgedLM
from drafter_service.bridge.pair import NOTHING, Pair
from drafter_service.bridge.respelling import respelled
from drafter_service.models.port import FILLED, BlockRequest
from drafter_service.proposals.draft_tree import TreeParams
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import coupled_path, tree_block
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from tests.support.drafters import ScriptedLM, scores_of
from tests.support.tokenizers_by_hand import (
    AB,
    ABC,
    E1,
    E2,
    END,
    SPACE,
    SPACE_A,
    T_A,
    T_B,
    T_BC,
    T_C,
    T_E1,
    T_E2,
    T_END,
    T_SPACE,
    A,
    B,
    C,
    E,
)


def rows_of(scores: BlockScores) -> list[dict[int, float]]:
    """Each slot's probabilities but those of tokens that will not be chosen."""
    return [
        {int(t): round(float(np.exp(q)), 6) for t, q in zip(ids, log_q, strict=True) if q > FILLED}
        for ids, log_q in zip(scores.tokens, scores.log_q, strict=True)
    ]


def test_tokens_are_paired_by_their_bytes(pair: Pair) -> None:
    first = {END: T_END, A: T_A, B: T_B, C: T_C, AB: T_A, ABC: T_A, SPACE: T_SPACE}
    first |= {SPACE_A: T_SPACE, E1: T_E1, E2: T_E2, E: T_E1}
    assert pair.first.tolist() == [first.get(token, NOTHING) for token in range(16)]
    assert pair.both == 7
    assert pair.spelled[ABC] == b"abc" and pair.spelled[END] == b""
    assert pair.bytes_of([T_A, T_BC, T_SPACE, T_END, 99]) == b"abc <|end|>"


def test_a_path_of_shared_tokens_keeps_its_candidates(pair: Pair) -> None:
    scores = scores_of([{A: 0.6, B: 0.3, END: 0.1}, {C: 0.7, A: 0.2, END: 0.1}])
    assert rows_of(respelled(scores, pair)) == [
        {T_A: 0.6, T_B: 0.3, T_END: 0.1},
        {T_C: 0.7, T_A: 0.2, T_END: 0.1},
    ]


def test_what_the_target_lacks_is_spelled_in_its_tokens(pair: Pair) -> None:
    rows = [{ABC: 0.5, A: 0.2, B: 0.1, END: 0.01}, {C: 0.6, SPACE_A: 0.3, END: 0.05}]
    said = respelled(scores_of([*rows, {B: 0.5, END: 0.5}]), pair)
    # "abc" is "a" and "bc": the second stands for no slot. "abc" and "a" both begin with "a".
    assert rows_of(said) == [
        {T_A: 0.7, T_B: 0.1, T_END: 0.01},
        {T_BC: 1.0},
        {T_C: 0.6, T_SPACE: 0.3, T_END: 0.05},
    ]
    assert all(T_END in row for row in said.tokens.tolist())
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).tokens == (T_A, T_BC)
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).bonus_guess == T_C
    assert rows_of(respelled(scores_of(rows), pair)) == rows_of(said)[:2]


def test_two_tokens_may_be_one_of_the_targets(pair: Pair) -> None:
    edges = {(1, B, C): 2.0, (2, C, A): 5.0, (2, END, A): -5.0}
    rows = [{B: 0.6, A: 0.3, END: 0.1}, {C: 0.5, END: 0.3}, {SPACE: 0.6, A: 0.3, END: 0.1}]
    said = respelled(scores_of(rows, edges), pair)
    assert rows_of(said)[0] == {T_BC: 0.6, T_A: 0.3, T_END: 0.1}
    assert said.tokens[1].tolist()[:2] == [T_SPACE, T_A]
    # What stands for slot 2 follows slot 1's candidate on the path, whatever is before it.
    assert said.edge is not None and (said.edge[1, :, 1] == 5.0).all()
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).tokens == (T_BC, T_A)


def test_edges_go_with_their_candidates(pair: Pair) -> None:
    edges = {(1, A, C): 1.0, (1, C, A): 2.0, (1, C, C): 3.0}
    said = respelled(
        scores_of([{A: 0.6, C: 0.3, END: 0.1}, {A: 0.5, C: 0.4, END: 0.1}], edges), pair
    )
    assert said.tokens.tolist() == [[T_A, T_C, T_END]] * 2
    assert said.edge is not None
    assert said.edge[1].tolist() == [[0.0, 1.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]


def test_the_end_is_said_where_it_is_drafted_and_nothing_behind_it(pair: Pair) -> None:
    rows = [{ABC: 0.9, END: 0.1}, {END: 0.9, A: 0.1}, {A: 0.5, END: 0.2}, {B: 0.5, END: 0.2}]
    said = respelled(scores_of(rows), pair)
    assert rows_of(said) == [{T_A: 0.9, T_END: 0.1}, {T_BC: 1.0}, {T_END: 0.9, T_A: 0.1}]
    drafted = coupled_path(said, 4, T_END, SamplingParams(), 0)
    assert (drafted.tokens, drafted.generated_len) == ((T_A, T_BC, T_END), 2)
    alone = respelled(scores_of([{END: 0.9, A: 0.1}]), pair)
    assert rows_of(alone) == [{T_END: 0.9, T_A: 0.1}]


def test_ids_without_a_token_are_never_candidates(pair: Pair) -> None:
    said = respelled(scores_of([{12: 0.6, A: 0.3, END: 0.1}]), pair)
    assert rows_of(said) == [{T_A: 0.3, T_END: 0.1}]
    tree = tree_block(said, 9, T_END, SamplingParams(), (), TreeParams(min_node_prob=0.0))
    assert set(tree.tokens) == {T_A, T_END}


def test_what_is_not_a_number_stays_so(pair: Pair) -> None:
    scores = scores_of([{A: 0.6, B: 0.3, END: 0.1}])
    scores.log_q[0, 1] = np.nan
    assert not np.isfinite(respelled(scores, pair).log_q).all()


def test_noise_is_that_of_the_targets_tokens(pair: Pair) -> None:
    scores = scores_of([{A: 0.3, B: 0.3, C: 0.3, END: 0.1}])
    for seed in range(20):
        own = gumbel(seed, np.array([7]), np.array([[T_A, T_B, T_C]]))[0]
        sampling = SamplingParams(temperature=1.0, seed=seed)
        [token] = coupled_path(respelled(scores, pair), 1, T_END, sampling, 7).tokens
        if token != T_END:
            assert token == (T_A, T_B, T_C)[int(own.argmax())]


def asked(model: ScriptedLM, since: int = 0) -> list[list[tuple[int, list[int], int]]]:
    """The passes' requests: start, tokens, slots."""
    return [
        [(r.start, list(r.tokens), r.num_slots) for r in requests]
        for requests in model.passes[since:]
    ]


def saying_a(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    return scores_of([{A: 0.9, END: 0.1}] * num_slots)


def test_a_cache_slot_keeps_what_the_new_text_begins_with(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    bridged = BridgedLM(model, pair, 16)
    assert (bridged.capabilities.vocab_size, bridged.capabilities.prefix_kv) == (8, "none")
    # Before each pass one of a single slot, behind the text without its last piece.
    bridged.draft([BlockRequest(1, 0, [T_C, T_A, T_B, T_SPACE], 3)])
    assert asked(model) == [[(0, [C, AB], 1)], [(2, [SPACE], 3)]]
    # "cab " and "a" are read as "c", "ab" and " a": what the slot holds is right up to "ab".
    [scores] = bridged.draft([BlockRequest(1, 0, [T_C, T_A, T_B, T_SPACE, T_A], 2)])
    assert asked(model, 2) == [[(1, [AB], 1)], [(2, [SPACE_A], 2)]]
    assert scores.tokens[:, 0].tolist() == [T_A, T_A]
    # Another session in the slot; one whose text is a single token needs but one pass.
    bridged.draft([BlockRequest(1, 0, [T_C, T_C], 2), BlockRequest(0, 0, [T_C], 1)])
    assert asked(model, 4) == [[(0, [C], 1)], [(1, [C], 2), (0, [C], 1)]]


def test_a_text_with_nothing_to_read_begins_behind_the_end(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    BridgedLM(model, pair, 16).draft([BlockRequest(0, 0, [99], 1)])
    assert asked(model) == [[(0, [END], 1)]]


def test_a_long_text_is_fed_in_chunks_and_its_end_where_it_is_too_long(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    bridged = BridgedLM(model, pair, 16)
    bridged.draft([BlockRequest(0, 0, [T_C] * 40, 4)])
    fed = [(len(r.tokens), r.num_slots) for requests in model.passes for r in requests]
    assert fed == [(16, 0), (16, 0), (7, 1), (1, 4)]
    # 64 tokens are held: of 61 and 4 slots the first 32 are left out, and of 70, too.
    for length, left in ((61, 29), (70, 38)):
        bridged.draft([BlockRequest(0, 0, [T_C] * length, 4)])
        assert asked(model)[-1] == [(left - 1, [C], 4)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_text_that_ends_inside_a_token_goes_on_with_its_rest(pair: Pair, whole: bool) -> None:
    def script(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
        if prefix == (C,):
            likely, less = (AB, ABC) if whole else (ABC, AB)
            rows = [{likely: 0.5, less: 0.3, B: 0.1, END: 0.01}, {SPACE: 0.9, END: 0.1}]
        else:
            rows = [{B: 0.9, END: 0.1}, {C: 0.9, END: 0.1}]
        return scores_of(rows[:num_slots])

    model = ScriptedLM(script)
    [scores] = BridgedLM(model, pair, 16).draft([BlockRequest(0, 0, [T_C, T_A, T_B], 2)])
    if whole:
        assert asked(model) == [[(0, [C], 1)], [(1, [AB], 2)]]
        assert rows_of(scores)[0] == {T_BC: 0.9, T_END: 0.1}
    else:
        assert asked(model) == [[(0, [C], 1)], [(0, [C], 2)]]
        assert rows_of(scores) == [{T_C: 0.5, T_END: 0.01}, {T_SPACE: 0.9, T_END: 0.1}]
