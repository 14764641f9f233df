"""Speculation does not change the law of the output, whatever proposes (design section 1).

A random tabular target over a small vocabulary decides; the real proposal functions draft with the
real shared noise; the output's first tokens are compared with the target's exact
distribution by chi-square. The classical rule min(1, p/q) fed with the shared noise must fail the
same test: that is the planted bug, and shows that the test can see one.
"""

from functools import cache

import numpy as np
import pytest
from scipy.stats import chisquare

from drafter_service.core.causal_scorer import EdgeScorer, Mixture
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.lattice import BlockScores
from drafter_service.core.lookup import continuation
from drafter_service.core.path_search import SearchParams
from drafter_service.core.proposals import argmax_path, copied_path, coupled_path, cps_path
from foredraft.noise import gumbel
from foredraft.tree import branch
from foredraft.types import SamplingParams
from verifier_service.core.acceptance import keep_while_equal as keep_branch

VOCAB = 5
EOS = 0
LENGTH = 2
DRAWS = 100_000
PROMPT = (2, 4)
POSITION = len(PROMPT)
TEMPERATURE = 0.9
ALPHA = 1e-4
PARAMS = SearchParams(tau=0.9, max_candidates=4, weight=0.4, beam=3)

_rng = np.random.default_rng(7)
LOGITS = {
    prefix: _rng.normal(0, 1.2, VOCAB)
    for length in range(LENGTH)
    for prefix in np.ndindex(*([VOCAB] * length))
}
"""The target: logits for every prefix of generated tokens."""


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


LOG_P = {prefix: log_softmax(logits / TEMPERATURE) for prefix, logits in LOGITS.items()}


@cache
def block_scores():
    """A drafter that is related to the target, and wrong: marginals and edges with errors."""
    rng = np.random.default_rng(11)
    log_q = log_softmax(LOGITS[()] * 0.5 + rng.normal(0, 0.7, (LENGTH + 1, VOCAB)))
    tokens = np.argsort(-log_q, axis=1)
    edge = rng.normal(0, 0.8, (LENGTH + 1, VOCAB, VOCAB))
    return BlockScores(tokens, np.take_along_axis(log_q, tokens, 1), edge)


@cache
def scorer():
    ngram = ContextNgram(VOCAB, order=3)
    ngram.extend((2, 4, 1, 2, 4, 3, 2, 4))
    return Mixture([(0.5, EdgeScorer()), (0.5, ngram)])


@cache
def drafts(strategy):
    """The tokens proposed after PROMPT for every seed, from the service's own functions."""
    return [_draft(strategy, SamplingParams(TEMPERATURE, seed=seed)) for seed in range(DRAWS)]


def _draft(strategy, sampling):
    scores = block_scores()
    if strategy == "argmax":
        return argmax_path(scores, LENGTH, EOS).tokens
    if strategy == "coupled":
        return coupled_path(scores, LENGTH, EOS, sampling, POSITION).tokens
    if strategy == "copied":
        return copied_path(continuation((*PROMPT, 1, 3, *PROMPT), LENGTH, 2), LENGTH, EOS).tokens
    return cps_path(scores, LENGTH, EOS, sampling, PROMPT, scorer(), PARAMS).tokens


def keep_while_equal(drafted, noise):
    """The target's own draws, as long as the draft agrees; then one draw more."""
    out = ()
    for token in (*drafted, None):
        if len(out) == LENGTH:
            break
        own = int(np.argmax(LOG_P[out] + noise[len(out)]))
        out = (*out, own)
        if own != token:
            break
    return out


@cache
def top_two_tree():
    """(tokens, parents): the drafter's two best tokens of each slot, below every node before it."""
    tokens, parents, leaves = [], [], [-1]
    for slot in range(LENGTH):
        level = [(leaf, int(token)) for leaf in leaves for token in block_scores().tokens[slot, :2]]
        leaves = list(range(len(tokens), len(tokens) + len(level)))
        parents += [leaf for leaf, _ in level]
        tokens += [token for _, token in level]
    return tokens, parents


def keep_a_branch(_, noise):
    """What the verifier's own rule makes of the tree, and the target's token after it."""
    tokens, parents = top_two_tree()
    prefixes = [(), *(tuple(tokens[i] for i in branch(parents, n)) for n in range(len(tokens)))]
    # Behind the last slot nothing is looked at.
    chosen = [
        int(np.argmax(LOG_P[prefix] + noise[len(prefix)])) if len(prefix) < LENGTH else EOS
        for prefix in prefixes
    ]
    kept, token = keep_branch(tokens, chosen, parents)
    return (*(tokens[node] for node in kept), token)[:LENGTH]


def min_p_over_q_with_shared_noise(drafted, noise):
    """The planted bug: the classical rule, its draft and residual drawn with the same noise."""
    scores, out = block_scores(), ()
    for slot, token in enumerate(drafted):
        q, p = np.zeros(VOCAB), np.exp(LOG_P[out])
        q[scores.tokens[slot]] = np.exp(log_softmax(scores.log_q[slot] / TEMPERATURE))
        # A uniform from the same stream as the draft's noise, as a shared generator would give.
        u = np.exp(-np.exp(-noise[slot, token]))
        if u > min(1.0, p[token] / q[token]):
            residual = np.log(np.maximum(p - q, 1e-300))
            return (*out, int(np.argmax(residual + noise[slot])))
        out = (*out, token)
    return out


@cache
def all_noise():
    """g(seed, position, token) for every seed and position: [DRAWS, LENGTH, VOCAB]."""
    positions = np.arange(POSITION, POSITION + LENGTH)
    return np.stack([gumbel(seed, positions, np.arange(VOCAB)) for seed in range(DRAWS)])


def outputs(strategy, accept):
    """LENGTH generated tokens for each seed, [DRAWS] indices of the sequence; and tokens kept.

    What one drafted round leaves open is decoded plainly.
    """
    noise = all_noise()
    found, kept = np.empty(DRAWS, dtype=np.int64), 0
    for seed, drafted in enumerate(drafts(strategy)):
        out = accept(drafted, noise[seed])
        kept += sum(a == b for a, b in zip(drafted, out, strict=False))
        while len(out) < LENGTH:
            out = (*out, int(np.argmax(LOG_P[out] + noise[seed, len(out)])))
        found[seed] = np.ravel_multi_index(out, (VOCAB,) * LENGTH)
    return found, kept / DRAWS


def p_value(found):
    """Chi-square of the sequences against the target's exact law."""
    exact = np.array(
        [
            np.exp(sum(LOG_P[sequence[:i]][sequence[i]] for i in range(LENGTH)))
            for sequence in np.ndindex(*([VOCAB] * LENGTH))
        ]
    )
    counts = np.bincount(found, minlength=len(exact))
    # Rare sequences share a cell: chi-square wants an expected count of 5 or more.
    order = np.argsort(-exact)
    rare = np.cumsum(exact[order]) > 1 - 20 / DRAWS
    expected = np.append(exact[order][~rare], exact[order][rare].sum()) * DRAWS
    observed = np.append(counts[order][~rare], counts[order][rare].sum())
    return chisquare(observed, expected * DRAWS / expected.sum()).pvalue


@pytest.mark.parametrize(
    ("strategy", "least_kept"), [("argmax", 0.3), ("coupled", 0.3), ("cps", 0.3), ("copied", 0.0)]
)
def test_keep_while_equal_keeps_the_targets_law(strategy, least_kept):
    found, kept = outputs(strategy, keep_while_equal)
    assert p_value(found) > ALPHA
    # The drafts matter: some are kept.
    assert kept > least_kept


def test_a_tree_keeps_the_targets_law():
    found, _ = outputs("argmax", keep_a_branch)
    assert p_value(found) > ALPHA
    plain, _ = outputs("argmax", lambda _, noise: ())
    assert np.array_equal(found, plain)


def test_a_planted_bug_is_seen():
    found, _ = outputs("coupled", min_p_over_q_with_shared_noise)
    assert p_value(found) < ALPHA
