"""The rules' output law, summed over every draft and every pattern of acceptance: no sampling.

A target and a drafter are tables over a vocabulary of two or three tokens. Each draft is weighted
with its probability, each pattern of tokens that pass with its odds, and what the round leaves open
is the target's; the sum must be the target's own law.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from foredraft.types import Acceptance, Candidates
from verifier_service.rules.acceptance import keep_while_equal
from verifier_service.rules.rejection import next_weights, one_hot
from verifier_service.rules.rules import METHODS

EXACT = (Acceptance.REJECTION, Acceptance.BLOCK)
SIZES = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]


def prefixes(vocab, length):
    return (prefix for n in range(length + 1) for prefix in product(range(vocab), repeat=n))


def random_target(rng, vocab, length):
    """p after every prefix, some of it 0 as after top-k, some of it in halves as q may be."""
    table = {}
    for prefix in prefixes(vocab, length):
        p = rng.dirichlet(np.full(vocab, rng.choice([0.3, 1.0, 5.0])))
        if rng.random() < 0.3:
            p[rng.integers(vocab)] = 0.0
        if rng.random() < 0.2:
            p = np.array([0.5, 0.5, 0.0])[:vocab]
        table[prefix] = p / p.sum()
    return table


def random_drafter(rng, vocab, length):
    """What the token after every prefix is drawn from; some candidates weigh nothing."""
    table = {}
    for prefix in prefixes(vocab, length):
        size = int(rng.integers(1, vocab + 1))
        ids = rng.permutation(vocab)[:size]
        weights = rng.integers(0, rng.choice([2, 5, 1 << 16]), size)
        weights[0] += 1
        table[prefix] = Candidates(tuple(ids.tolist()), tuple(weights.tolist()))
    return table


def drafts(drafter, k, ends=()):
    """Every draft of k tokens, or fewer where it comes to one of ends: (probability, tokens, q)."""
    found: list[tuple[float, tuple[int, ...], tuple[Candidates, ...]]] = [(1.0, (), ())]
    ended: list[tuple[float, tuple[int, ...], tuple[Candidates, ...]]] = []
    for _ in range(k):
        longer = [
            (mass * weight / sum(q.weights), (*tokens, token), (*qs, q))
            for mass, tokens, qs in found
            for q in [drafter[tokens]]
            for token, weight in zip(*q, strict=True)
            if weight
        ]
        ended += [draft for draft in longer if draft[1] in ends]
        found = [draft for draft in longer if draft[1] not in ends]
    return ended + found


def completion(target, prefix, length):
    """The target's law of what follows prefix up to length tokens: [vocab] * (length - len)."""
    if len(prefix) == length:
        return np.array(1.0)
    p = target[prefix]
    return np.stack([p[v] * completion(target, (*prefix, v), length) for v in range(len(p))])


def outcomes(method, target, tokens, q):
    """Every way a draft can be judged: (probability, kept, the next token's law)."""
    p = np.stack([target[tokens[:i]] for i in range(len(tokens) + 1)])
    odds = method.odds(p, tokens, q)
    for passed in product((True, False), repeat=len(tokens)):
        mass = np.prod(np.where(passed, odds.keep, 1 - odds.keep))
        if mass > 0:
            kept = int(method.kept(np.array(passed)))
            yield mass, kept, weights_after(p, q, odds, kept)


def weights_after(p, q, odds, kept):
    weights = next_weights(p, q, odds, kept)
    assert (weights >= 0).all()
    return weights / weights.sum()


def law(acceptance, target, drafter, vocab, k, told=None, ends=()):
    """The law of k + 1 tokens, [vocab] * (k + 1), and the mean number kept.

    told(tokens, q) is the q that the rule is given, by default the one drawn from.
    """
    joint = np.zeros((vocab,) * (k + 1))
    mean = 0.0
    for weight, tokens, q in drafts(drafter, k, ends):
        said = told(tokens, q) if told else q
        for mass, kept, after in outcomes(METHODS[acceptance], target, tokens, said):
            mean += weight * mass * kept
            for v in np.flatnonzero(after):
                prefix = (*tokens[:kept], int(v))
                joint[prefix] += weight * mass * after[v] * completion(target, prefix, k + 1)
    return joint, mean


@pytest.mark.parametrize(("vocab", "k"), SIZES)
@pytest.mark.parametrize("acceptance", EXACT)
def test_a_sampled_draft_keeps_the_targets_law(acceptance, vocab, k):
    for state in range(25):
        rng = np.random.default_rng(state)
        target, drafter = random_target(rng, vocab, k), random_drafter(rng, vocab, k)
        found, _ = law(acceptance, target, drafter, vocab, k)
        np.testing.assert_allclose(found, completion(target, (), k + 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("vocab", "k"), SIZES)
@pytest.mark.parametrize("acceptance", EXACT)
def test_every_deterministic_draft_keeps_the_targets_law(acceptance, vocab, k):
    rng = np.random.default_rng(k)
    target = random_target(rng, vocab, k)
    exact = completion(target, (), k + 1)
    for draft in product(range(vocab), repeat=k):
        drafter = {draft[:i]: q for i, q in enumerate(one_hot(draft))}
        found, _ = law(acceptance, target, drafter, vocab, k)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("acceptance", EXACT)
def test_a_draft_may_end_where_the_tokens_before_say_so(acceptance):
    """As after EOS. (It must not be cut for what stands behind the cut.)"""
    for state in range(25):
        rng = np.random.default_rng(state)
        target, drafter = random_target(rng, 3, 3), random_drafter(rng, 3, 3)
        ends = {prefix for prefix in prefixes(3, 2) if prefix and rng.random() < 0.4}
        found, _ = law(acceptance, target, drafter, 3, 3, ends=ends)
        np.testing.assert_allclose(found, completion(target, (), 4), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("vocab", "k"), SIZES)
def test_block_keeps_at_least_as_many_as_rejection(vocab, k):
    more = 0
    for state in range(25):
        rng = np.random.default_rng(state)
        target, drafter = random_target(rng, vocab, k), random_drafter(rng, vocab, k)
        _, tokenwise = law(Acceptance.REJECTION, target, drafter, vocab, k)
        _, block = law(Acceptance.BLOCK, target, drafter, vocab, k)
        assert block >= tokenwise - 1e-12
        more += block > tokenwise + 1e-6
    assert (more > 0) == (k > 1)


def test_the_papers_example():
    """Sun et al. 2024, Sec. 1: 10/9 tokens are kept one by one, 11/9 as a block."""
    target = dict.fromkeys(prefixes(2, 2), np.array([1 / 3, 2 / 3]))
    drafter = dict.fromkeys(prefixes(2, 2), Candidates((0, 1), (2, 1)))
    kept = [law(acceptance, target, drafter, 2, 2)[1] for acceptance in EXACT]
    assert kept == pytest.approx([10 / 9, 11 / 9], abs=1e-12)


def searched(rng, vocab, k):
    """A drafter that always says the same, and the marginals that it looked at: one for a slot."""
    draft = tuple(rng.integers(0, vocab, k).tolist())
    marginals = tuple(
        Candidates(tuple(range(vocab)), tuple(rng.integers(1, 100, vocab).tolist()))
        for _ in range(k)
    )
    return {draft[:i]: q for i, q in enumerate(one_hot(draft))}, lambda *_: marginals


def test_the_law_changes_with_a_q_that_the_draft_was_not_drawn_from():
    """The marginal is not what a search's token was drawn from (DiffuSpec Eq. 5)."""
    rng = np.random.default_rng(2)
    target = random_target(rng, 3, 2)
    drafter, told = searched(rng, 3, 2)
    found, _ = law(Acceptance.L2R, target, drafter, 3, 2, told)
    assert np.abs(found - completion(target, (), 3)).max() > 0.01


@pytest.mark.parametrize("acceptance", list(METHODS))
def test_all_rules_keep_while_equal_at_temperature_0(acceptance):
    vocab, k = 3, 3
    for state in range(10):
        rng = np.random.default_rng(state)
        target = {prefix: np.eye(vocab)[rng.integers(vocab)] for prefix in prefixes(vocab, k)}
        for _, tokens, q in drafts(random_drafter(rng, vocab, k), k):
            chosen = [int(target[tokens[:i]].argmax()) for i in range(k + 1)]
            path, token = keep_while_equal(tokens, chosen)
            for said in (q, one_hot(tokens)):
                judged = list(outcomes(METHODS[acceptance], target, tokens, said))
                assert len(judged) >= 1
                for _, kept, after in judged:
                    assert (kept, after[token]) == (len(path), 1.0)


def test_what_cancels_up_to_rounding_is_drawn_from_p():
    """q is p, but a third has no exact double: a refusal here is rounding, and leaves nothing."""
    p = np.full((2, 3), 1 / 3)
    q = (Candidates((0, 1, 2), (1, 1, 1)),)
    for acceptance in EXACT:
        odds = METHODS[acceptance].odds(p, (1,), q)
        assert odds.keep == pytest.approx([1.0])
        assert next_weights(p, q, odds, 0) == pytest.approx(p[0])
