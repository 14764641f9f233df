import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.causal_scorer import EdgeScorer, Mixture, Uniform
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.lattice import NEVER, BlockScores, Lattice
from drafter_service.proposals.path_search import SearchParams, beam_search
from drafter_service.proposals.proxies.kenlm import KenLMScorer
from drafter_service.proposals.proxies.ngram_table import NgramTable
from drafter_service.proposals.proxies.static_ngram import StaticNgram
from tests.support.examples import examples
from tests.support.oracles.ngram_table import score
from training.proxy.arpa import Words, save_arpa
from training.proxy.kneser_ney import count_ngrams, estimate

VOCAB = 6


def lattice_of(tokens, log_q=None, edge=None):
    tokens = np.array(tokens, dtype=np.int64)
    scores = BlockScores(tokens, np.zeros(tokens.shape) if log_q is None else log_q, edge)
    zeros = np.zeros(len(tokens) + 1)
    return Lattice(scores.tokens, scores.log_q, np.zeros(tokens.shape), edge, (zeros, zeros))


def naive(text, history, word, order, a, window):
    """The interpolated probability behind history, counted afresh."""
    p = 1 / VOCAB
    for o in range(order):
        if o > len(history):
            break
        tail = tuple(history[len(history) - o :])
        first = max(o, len(text) - window)
        ends = [i for i in range(first, len(text)) if tuple(text[i - o : i]) == tail]
        if not ends:
            break
        p = (sum(text[i] == word for i in ends) + a * p) / (len(ends) + a)
    return p


texts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30)


@examples(100)
@given(texts, texts, st.integers(1, 4), st.integers(1, 40))
def test_context_ngram_is_the_interpolated_count(text, path, order, window):
    model = ContextNgram(VOCAB, order, window, pseudocount=0.5)
    bound = model.bind(lattice_of([list(range(VOCAB))] * (len(path) + 1)), text)
    for drafted in ((), tuple(path)):
        scores = bound.step(len(drafted), [drafted], np.zeros(1, dtype=np.int64))[0]
        history = [*text, *drafted]
        expected = [naive(text, history, w, order, 0.5, window) for w in range(VOCAB)]
        assert scores == pytest.approx(expected)
        assert scores.sum() == pytest.approx(1.0)


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
        assert np.log(got) == pytest.approx(score(reference, (2, *path), words)), path
    pairs = [(u, v) for u in range(3) for v in range(3)]
    got = model.score(np.array(pairs)[:, 0], np.array(pairs)[:, 1], words)
    assert got == pytest.approx(np.stack([score(reference, pair, words) for pair in pairs]))


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


@pytest.fixture(scope="module")
def arpa(tmp_path_factory):
    """An ARPA file over 50 token ids, of order 3, and KenLM's own reading of it."""
    kenlm = pytest.importorskip("kenlm", reason="the kenlm package is not installed")
    words, random = Words(50), np.random.default_rng(0)
    texts = [np.minimum(random.zipf(1.3, 300), 50) - 1 for _ in range(6)]
    rows = [np.insert(text, 0, words.begin) for text in texts]
    path = tmp_path_factory.mktemp("proxy") / "proxy.arpa"
    save_arpa(estimate(count_ngrams(rows, words, 3), words, [0, 0, 1]), path)
    return str(path), kenlm.Model(str(path))


def log10_of(model, tokens):
    """The sum in double precision: KenLM's own is of single precision."""
    sentence = " ".join(map(str, tokens))
    return sum(score for score, _, _ in model.full_scores(sentence, bos=True, eos=False))


@pytest.mark.parametrize("context", [[], [7], [3, 0], [0, 1, 49, 1, 2, 0, 0, 5]])
def test_kenlm_scorer_is_kenlms_score_of_the_whole_text(arpa, context):
    path, model = arpa
    slots = [[0, 1, 49], [2, 0, 50], [0, 5, 1], [3, 1, 0]]
    bound = KenLMScorer(path).bind(lattice_of(slots), context)
    beams: list[tuple[int, ...]] = [()]
    for slot, candidates in enumerate(slots):
        parents = np.array([slots[slot - 1].index(p[-1]) if p else 0 for p in beams])
        scores = bound.step(slot, beams, parents)
        for row, beam in zip(scores, beams, strict=True):
            whole = [*context, *beam]
            expected = [log10_of(model, [*whole, c]) - log10_of(model, whole) for c in candidates]
            assert np.log10(row) == pytest.approx(expected, abs=1e-5)
        # Some paths go on, in another order, and two of them from the same one.
        beams = [
            (*beams[-1], candidates[1]),
            (*beams[0], candidates[0]),
            (*beams[0], candidates[2]),
        ]


def test_a_beam_under_kenlm_finds_the_best_path(arpa):
    path, model = arpa
    slots = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    log_q = np.log(np.array([[0.5, 0.3, 0.2]] * 3))
    log_q[1, 2] = NEVER
    lattice, weight = lattice_of(slots, log_q), 0.5
    params = SearchParams(weight=weight, beam=9)
    found = beam_search(lattice, KenLMScorer(path).bind(lattice, [0, 3]), params, 0.0, eos=49)

    def score(columns):
        tokens = [row[column] for row, column in zip(slots, columns, strict=True)]
        causal = np.log(10) * log10_of(model, [0, 3, *tokens])
        return weight * log_q[range(3), columns].sum() + (1 - weight) * causal

    paths = [list(p) for p in itertools.product(range(3), range(2), range(3))]
    best = max(paths, key=score)
    assert found == [row[column] for row, column in zip(slots, best, strict=True)]


def test_kenlm_scorer_refuses_a_model_of_other_words(tmp_path):
    pytest.importorskip("kenlm", reason="the kenlm package is not installed")
    path = tmp_path / "words.arpa"
    words = "\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-1\t</s>\n-1\tword"
    pairs = "\n\n\\2-grams:\n-1\t<s> word"
    path.write_text(f"\\data\\\nngram 1=4\nngram 2=1{words}{pairs}\n\n\\end\\\n")
    with pytest.raises(ValueError, match="token ids"):
        KenLMScorer(str(path))
    with pytest.raises(OSError, match="absent"):
        KenLMScorer(str(tmp_path / "absent.arpa"))
