import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_service.core.causal_scorer import EdgeScorer, Mixture, Uniform
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.lattice import BlockScores, Lattice
from drafter_service.core.ngram_table import NgramTable
from drafter_service.core.static_ngram import StaticNgram

VOCAB = 6


def lattice_of(tokens, log_q=None, edge=None):
    tokens = np.array(tokens, dtype=np.int64)
    scores = BlockScores(tokens, np.zeros(tokens.shape) if log_q is None else log_q, edge)
    zeros = np.zeros(len(tokens) + 1)
    return Lattice(scores.tokens, scores.log_q, np.zeros(tokens.shape), edge, (zeros, zeros))


def naive(context, word, order, a):
    """The interpolated probability, counted afresh."""
    p = 1 / VOCAB
    for o in range(order):
        if o > len(context):
            break
        tail = tuple(context[len(context) - o :])
        ends = [i for i in range(o, len(context)) if tuple(context[i - o : i]) == tail]
        if not ends:
            break
        p = (sum(context[i] == word for i in ends) + a * p) / (len(ends) + a)
    return p


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30))
def test_context_ngram_is_the_interpolated_count(text):
    model = ContextNgram(VOCAB, order=3, pseudocount=0.5)
    model.extend(text)
    bound = model.bind(lattice_of([list(range(VOCAB))]), text)
    scores = bound.step(0, [()], np.zeros(1, dtype=np.int64))[0]
    assert scores == pytest.approx([naive(text, w, 3, 0.5) for w in range(VOCAB)])
    assert scores.sum() == pytest.approx(1.0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30),
    st.lists(st.integers(0, VOCAB - 1), max_size=30),
    st.integers(0, 30),
)
def test_cut_back_and_extended_equals_fresh(first, then, keep):
    keep = min(keep, len(first))
    model, fresh = ContextNgram(VOCAB, order=4), ContextNgram(VOCAB, order=4)
    model.extend(first)
    model.truncate(keep)
    model.extend(then)
    fresh.extend(first[:keep] + then)
    assert tables(model) == tables(fresh)


def tables(model):
    return [{c: (f.total, f.counts) for c, f in table.items()} for table in model._tables]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, VOCAB - 1), max_size=60), st.integers(0, 60))
def test_memory_is_bounded_by_the_window(text, keep):
    model = ContextNgram(VOCAB, order=3, window=10)
    model.extend(text)
    assert sum(f.total for f in model._tables[0].values()) == min(len(text), 10)
    assert sum(len(f.counts) for table in model._tables for f in table.values()) <= 30
    model.truncate(min(keep, len(text)))
    model.truncate(0)
    assert not any(model._tables)


def table():
    return NgramTable(
        unigram=np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32)),
        bigram_offsets=np.array([0, 1, 3, 3]),
        bigram_tokens=np.array([2, 0, 1], dtype=np.uint16),
        bigram_log_probs=np.log(np.array([0.6, 0.7, 0.1], dtype=np.float32)),
        bigram_backoff=np.log(np.array([0.4, 0.2, 1.0], dtype=np.float32)),
        trigram_keys=np.array([0 * 3 + 1, 2 * 3 + 0]),
        trigram_offsets=np.array([0, 1, 2]),
        trigram_tokens=np.array([2, 1], dtype=np.uint16),
        trigram_log_probs=np.log(np.array([0.9, 0.8], dtype=np.float32)),
        trigram_backoff=np.log(np.array([0.1, 0.3], dtype=np.float32)),
    )


def test_static_ngram_equals_the_table_for_every_context():
    reference, words = table(), np.arange(3)
    model = StaticNgram(reference)
    bound = model.bind(lattice_of([words, words, words]), (2,))
    for path in [(), (0,), (1,), (2,), (0, 1), (2, 0), (1, 1)]:
        got = bound.step(len(path), [path], np.zeros(1, dtype=np.int64))[0]
        assert np.log(got) == pytest.approx(reference.score((2, *path), words)), path
    pairs = [(u, v) for u in range(3) for v in range(3)]
    got = model.score(np.array(pairs)[:, 0], np.array(pairs)[:, 1], words)
    assert got == pytest.approx(np.stack([reference.score(pair, words) for pair in pairs]))


def test_edge_scorer_is_the_models_conditional():
    log_q = np.log(np.array([[0.5, 0.5], [0.9, 0.1]]))
    edge = np.zeros((2, 2, 2))
    edge[1, 1, 1] = np.log(9)
    bound = EdgeScorer().bind(lattice_of([[1, 2], [3, 4]], log_q, edge), ())
    scores = bound.step(1, [(1,), (2,)], np.array([0, 1]))
    assert scores == pytest.approx(np.array([[0.9, 0.1], [0.5, 0.5]]))


def test_mixture_adds_probabilities():
    log_q = np.log(np.array([[0.8, 0.2]]))
    mixture = Mixture([(3.0, EdgeScorer()), (1.0, Uniform())])
    bound = mixture.bind(lattice_of([[1, 2]], log_q), ())
    scores = bound.step(0, [()], np.zeros(1, dtype=np.int64))
    assert scores == pytest.approx(np.array([[0.75 * 0.8 + 0.25, 0.75 * 0.2 + 0.25]]))
