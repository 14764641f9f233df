"""What each way of drafting asks of the model, and the exact tokens it makes of the answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.denoising import MASK, Denoiser, Pass
from drafter_service.proposals.draft_tree import TreeParams
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import (
    NO_GUESS,
    Drafted,
    argmax_path,
    coupled_path,
    tree_block,
)
from drafter_service.proposals.sampled import sampled_path
from drafter_service.strategies import (
    Autoregressive,
    Diffusion,
    Extended,
    ExtendParams,
    Lookup,
    Warmup,
)
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from tests.support.drafters import EOS, counting, driven, scores_of

GREEDY = SamplingParams()
ROOM = 50


def argmax(scores, count, text, start):
    return argmax_path(scores, count, EOS)


def coupled(sampling):
    return lambda scores, count, text, start: coupled_path(scores, count, EOS, sampling, len(text))


def sampled(sampling):
    return lambda scores, count, text, start: sampled_path(
        scores, count, EOS, sampling, len(text), start, 64
    )


def answer(asked):
    return counting(asked.text, asked.num_slots)


def random_scores(asked, seed=0):
    """Scores with edges that are a function of the text."""
    rng = np.random.default_rng([seed, *asked.text, asked.num_slots])
    slots, width = asked.num_slots, 5
    tokens = np.array([rng.permutation(15)[:width] + 1 for _ in range(slots)])
    tokens[:, -1] = EOS
    log_q = np.sort(rng.normal(0, 2, (slots, width)), axis=1)[:, ::-1]
    return BlockScores(tokens, log_q, rng.normal(0, 2, (slots, width, width)))


def extended(block=2, confidence=0.8, most=9, draw=None):
    return Extended(
        Denoiser(1, GREEDY), draw or argmax, GREEDY, ExtendParams(block, confidence, most)
    )


# Diffusion


def test_diffusion_asks_once_for_the_tokens_and_their_guess():
    strategy = Diffusion(Denoiser(1, GREEDY), argmax, max_slots=9)
    drafted, asked = driven(strategy.draft(3, (4,), ROOM), answer)
    assert (drafted, asked) == (Drafted((5, 6, 7), 3, 8), [Pass((4,), 4)])
    assert strategy.max_draft_tokens == 8
    for room, slots in ((3, 3), (1, 1)):
        drafted, asked = driven(strategy.draft(3, (4,), room), answer)
        assert (len(drafted.tokens), asked) == (slots, [Pass((4,), slots)])


@pytest.mark.parametrize("nodes", [1, 3, 20])
def test_a_tree_needs_no_more_slots_than_its_depth(nodes):
    def tree(scores, count, text, start):
        return tree_block(scores, count, EOS, GREEDY, text, TreeParams(depth=4))

    strategy = Diffusion(Denoiser(1, GREEDY), tree, 4, max_nodes=63, guess_slots=0)
    _, [asked] = driven(strategy.draft(nodes, (4,), ROOM), answer)
    assert asked.num_slots == min(nodes, 4)
    assert strategy.max_draft_tokens == 63


def test_a_tree_names_what_follows_its_longest_branch():
    def tree(scores, count, text, start):
        every = TreeParams(depth=4, min_node_prob=0)
        return tree_block(scores, count, EOS, GREEDY, text, every, num_guesses=3)

    for guess_slots in (0, 1):
        strategy = Diffusion(Denoiser(1, GREEDY), tree, 4, max_nodes=63, guess_slots=guess_slots)
        drafted, [asked] = driven(strategy.draft(1, (4,), ROOM), answer)
        assert asked.num_slots == 1 + guess_slots
        # Below the draft's one node there is something to name with a second slot alone.
        assert any(guess.node == 0 for guess in drafted.guesses) == bool(guess_slots)


# Autoregressive


def test_autoregressive_feeds_each_token_to_the_next_pass():
    drafted, asked = driven(
        Autoregressive(coupled(GREEDY), GREEDY, EOS, 8).draft(3, (4,), ROOM), answer
    )
    assert drafted == Drafted((5, 6, 7), 3, NO_GUESS)
    assert asked == [Pass((4,), 1), Pass((4, 5), 1), Pass((4, 5, 6), 1)]


def test_autoregressive_ends_at_eos_the_limit_and_the_models_longest_sequence():
    def ending(asked):
        return scores_of([{EOS: 0.9, 3: 0.1} if len(asked.text) > 2 else {3: 0.9, EOS: 0.1}])

    strategy = Autoregressive(coupled(GREEDY), GREEDY, EOS, 8)
    drafted, asked = driven(strategy.draft(5, (4,), ROOM), ending)
    assert (drafted, len(asked)) == (Drafted((3, 3, EOS), 2, NO_GUESS), 3)
    assert len(driven(strategy.draft(20, (4,), ROOM), answer)[1]) == 8
    assert len(driven(strategy.draft(20, (4,), 2), answer)[1]) == 2


@given(
    st.integers(1, 8), st.integers(0, 99), st.sampled_from([0.0, 0.9]), st.sampled_from([1.0, 0.8])
)
def test_autoregressive_equals_repeated_one_slot_draws(count, seed, temperature, top_p):
    sampling = SamplingParams(temperature, top_p=top_p, seed=seed)
    text = [4, 5]
    for _ in range(count):
        scores = random_scores(Pass(text, 1), seed)
        if temperature == 0:
            column = (scores.log_q[0] + scores.edge[0, 0]).argmax()
            text.append(int(scores.tokens[0, column]))
        else:
            text += coupled_path(scores, 1, EOS, sampling, len(text)).tokens
        if text[-1] == EOS:
            break
    strategy = Autoregressive(coupled(sampling), sampling, EOS, 8)
    drafted, _ = driven(strategy.draft(count, (4, 5), ROOM), lambda a: random_scores(a, seed))
    assert drafted.tokens == tuple(text[2:])


def test_autoregressive_drafts_can_be_drawn_from_their_own_q():
    sampling = SamplingParams(1.0, seed=6)
    strategy = Autoregressive(sampled(sampling), GREEDY, EOS, 8)
    drafted, _ = driven(strategy.draft(4, (4, 5), ROOM), random_scores)
    assert len(drafted.q) == len(drafted.tokens)
    text: tuple[int, ...] = (4, 5)
    for token, q in zip(drafted.tokens, drafted.q, strict=True):
        [alone] = sampled_path(
            random_scores(Pass(text, 1)), 1, EOS, sampling, len(text), prefix_len=2, most=64
        ).q
        assert q == alone and token in q.tokens
        text += (token,)


# Extended


def confident_until(length):
    """counting, surer than 0.8 of every token at a position below length only."""

    def script(asked):
        sure = [len(asked.text) + j < length for j in range(asked.num_slots)]
        best = [1 + (asked.text[-1] + j) % 14 for j in range(asked.num_slots)]
        odds = [0.9 if s else 0.7 for s in sure]
        return scores_of([{t: p, 15: 0.99 - p, EOS: 0.01} for t, p in zip(best, odds, strict=True)])

    return script


def test_a_path_grows_while_its_last_block_is_confident():
    drafted, asked = driven(extended().draft(9, (4,), ROOM), confident_until(4))
    # Positions 1-2 are sure, 3 is, 4 is not: the second block is kept and is the last.
    assert drafted == Drafted((5, 6, 7, 8), 4, 9)
    assert asked == [Pass((4,), 3), Pass((4, 5, 6), 3)]


def test_a_path_fails_fast():
    drafted, asked = driven(extended().draft(9, (4,), ROOM), confident_until(0))
    assert (drafted, len(asked)) == (Drafted((5, 6), 2, 7), 1)


def test_a_path_never_outgrows_what_was_asked_for_the_maximum_or_the_model():
    sure = confident_until(99)
    assert driven(extended().draft(5, (4,), ROOM), sure)[0] == Drafted((5, 6, 7, 8, 9), 5, 10)
    assert len(driven(extended(most=3).draft(5, (4,), ROOM), sure)[0].tokens) == 3
    drafted, asked = driven(extended().draft(9, (4,), 5), sure)
    assert (len(drafted.tokens), drafted.bonus_guess) == (5, NO_GUESS)
    assert [a.num_slots for a in asked] == [3, 3, 1]


def test_a_path_does_not_grow_past_eos():
    def script(asked):
        return scores_of([{3: 0.9, EOS: 0.1}, {EOS: 0.9, 3: 0.1}, {3: 0.9, EOS: 0.1}])

    drafted, asked = driven(extended().draft(9, (4,), ROOM), script)
    assert (drafted, len(asked)) == (Drafted((3, EOS), 1, NO_GUESS), 1)


@given(
    st.integers(1, 12), st.integers(1, 4), st.floats(0, 1), st.integers(1, 20), st.integers(0, 99)
)
def test_extended_never_exceeds_its_bounds(count, block, confidence, room, seed):
    strategy = extended(block, confidence, 10, coupled(GREEDY))
    drafted, asked = driven(strategy.draft(count, (4, 5), room), lambda a: random_scores(a, seed))
    assert 1 <= len(drafted.tokens) <= min(count, 10, room)
    assert 0 <= drafted.generated_len <= count
    for before, after in itertools.pairwise(asked):
        assert after.text[: len(before.text)] == before.text
    assert all(len(a.text) + a.num_slots <= 2 + room for a in asked)
    assert (2 + len(drafted.tokens)) - len(asked[-1].text) <= block


def test_an_extended_draw_has_one_stream_of_noise_for_the_whole_path():
    sampling = SamplingParams(1.0, seed=6)
    even = {t: 1 / 16 for t in range(1, 15)} | {15: 1 / 16, EOS: 1e-9}
    flat = lambda asked: scores_of([even] * asked.num_slots)  # noqa: E731
    strategy = extended(confidence=0.0, draw=sampled(sampling))
    whole, asked = driven(strategy.draft(6, (4, 5), ROOM), flat)
    once = Diffusion(Denoiser(1, GREEDY), sampled(sampling), 9)
    assert len(asked) == 3
    assert whole == driven(once.draft(6, (4, 5), ROOM), flat)[0]
    assert len(whole.q) == 6


def test_a_coupled_path_that_grows_keeps_to_the_targets_noise():
    sampling = SamplingParams(1.0, seed=6)
    even = {t: 1 / 15 for t in range(1, 16)} | {EOS: 1e-9}
    flat = lambda asked: scores_of([even] * asked.num_slots)  # noqa: E731
    params = ExtendParams(2, 0.0, 9)
    strategy = Extended(Denoiser(1, GREEDY), coupled(sampling), sampling, params)
    drafted, _ = driven(strategy.draft(6, (4, 5), ROOM), flat)
    noise = gumbel(6, np.arange(2, 8), np.arange(1, 16))
    assert drafted.tokens == tuple((noise.argmax(1) + 1).tolist())


def test_each_block_of_a_path_can_be_refined():
    strategy = Extended(Denoiser(2, GREEDY), argmax, GREEDY, ExtendParams(2, 0.8, 9))
    _, asked = driven(strategy.draft(4, (4,), ROOM), answer)
    assert [(a.text, a.filled) for a in asked] == [
        ((4,), ()),
        ((4,), (5, 6, MASK)),
        ((4, 5, 6), ()),
        ((4, 5, 6), (7, 8, MASK)),
    ]


# Warmup


def test_the_first_tokens_are_drafted_otherwise():
    then = Diffusion(Denoiser(1, GREEDY), argmax, 9)
    strategy = Warmup(Autoregressive(coupled(GREEDY), GREEDY, EOS, 4), then, until=6)
    assert strategy.max_draft_tokens == 8
    first, asked = driven(strategy.draft(2, (1, 2, 3, 4, 5), ROOM), answer)
    assert (first.tokens, [a.num_slots for a in asked]) == ((6, 7), [1, 1])
    second, asked = driven(strategy.draft(2, (1, 2, 3, 4, 5, 6), ROOM), answer)
    assert (second.tokens, [a.num_slots for a in asked]) == ((7, 8), [3])


def test_the_opening_may_have_nothing_to_propose():
    then = Diffusion(Denoiser(1, GREEDY), argmax, 9)
    strategy = Warmup(Lookup(EOS, 2, 4), then, until=6)
    assert driven(strategy.draft(2, (1, 2, 3), ROOM), answer) == (Drafted((), 0, NO_GUESS), [])
