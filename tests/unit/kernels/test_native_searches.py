"""The compiled searches find what core/'s do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.models.compiled.noise import best_noise
from drafter_service.models.compiled.searches import NativeBeam, NativeTree
from drafter_service.proposals.causal_scorer import EdgeScorer, Mixture
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.draft_tree import Tree, TreeParams, TreeScores, grow
from drafter_service.proposals.lattice import NEVER, BlockScores
from drafter_service.proposals.path_search import BeamSearch, SearchParams
from foredraft.decoding.tree import branch, check_parents
from foredraft.noise.gumbel import gumbel
from foredraft_kernels.loader import load_kernels
from tests.support.drafters import EOS
from tests.support.examples import examples

pytestmark = pytest.mark.skipif(load_kernels() is None, reason="not built")

# Tokens of one bucket of the chains besides each other.
VOCAB = 3 * 4096
TOKENS = np.array([EOS, *range(1, 9), 4096, 4097, 2 * 4096 + 1])


@st.composite
def cases(draw):
    """Scores as the model gives them, EOS anywhere in a slot, and the noise, some of it NEVER."""
    slots, width = draw(st.integers(1, 8)), draw(st.integers(2, 10))
    temperature = draw(st.sampled_from([0.0, 0.8]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tokens = np.stack([rng.permutation(TOKENS[1:])[:width] for _ in range(slots)])
    tokens[np.arange(slots), rng.integers(width, size=slots)] = EOS
    logits = rng.normal(0, draw(st.sampled_from([0.5, 3.0])), (slots, 16))
    log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    log_q = -np.sort(-log_q, axis=1)[:, :width].astype(np.float32)
    edge = rng.normal(0, 2, (slots, width, width)).astype(np.float32)
    edge[0] = edge[0, 0]
    noise = np.zeros((slots, width))
    if temperature:
        noise = np.where(rng.random(noise.shape) < 0.2, NEVER, rng.gumbel(size=noise.shape))
        noise[:, 0] = rng.gumbel(size=slots)
    scores = BlockScores(tokens, log_q, edge if draw(st.booleans()) else None)
    return scores, noise, temperature, rng


@examples(400)
@given(
    case=cases(),
    order=st.integers(1, 5),
    window=st.sampled_from([1, 7, 4096]),
    length=st.integers(0, 60),
    parts=st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.6, 0.3)]),
    params=st.builds(
        SearchParams,
        st.sampled_from([0.5, 0.95, 1.0]),
        st.integers(1, 12),
        st.sampled_from([0.0, 0.2, 1.0]),
        st.integers(1, 6),
    ),
)
def test_the_beam_is_the_references(case, order, window, length, parts, params):
    scores, noise, temperature, rng = case
    context = rng.choice(TOKENS[1:5] if length % 2 else TOKENS, length).tolist()
    ngram = ContextNgram(VOCAB, order, window)
    scorers = zip(parts, (EdgeScorer(), ngram), strict=True)
    reference = BeamSearch(Mixture([part for part in scorers if part[0]]), params)
    native = NativeBeam(load_kernels(), params, *parts, ngram)
    expected = reference(scores, noise, context, temperature, EOS)
    assert native(scores, noise, context, temperature, EOS) == expected


def test_of_equal_paths_the_same_one_is_found():
    tokens = np.array([[1, 2, EOS], [3, EOS, 4], [5, 6, EOS]])
    scores = BlockScores(tokens, np.full(tokens.shape, np.log(0.25), dtype=np.float32))
    for beam in (1, 2, 9):
        params = SearchParams(1.0, 15, 0.5, beam)
        native = NativeBeam(load_kernels(), params, 1.0, 0.0, ContextNgram(VOCAB))
        reference = BeamSearch(Mixture([(1.0, EdgeScorer())]), params)
        arguments = (scores, np.zeros(tokens.shape), (7,), 0.0, EOS)
        assert native(*arguments) == reference(*arguments)


@examples(600)
@given(
    case=cases(),
    nodes=st.integers(1, 70),
    depth=st.integers(1, 8),
    least=st.sampled_from([0.0, 0.02]),
    length=st.integers(0, 60),
    window=st.sampled_from([1, 7, 2048]),
    text_depth=st.integers(1, 12),
    pseudocounts=st.lists(st.sampled_from([0.5, 3.0, 20.0]), max_size=5),
)
def test_the_tree_is_the_references(
    case, nodes, depth, least, length, window, text_depth, pseudocounts
):
    scores, noise, temperature, rng = case
    logits = scores.log_q[:, None, :]
    if scores.edge is not None:
        logits = logits + scores.edge
    text = rng.choice(TOKENS[1:5] if length % 2 else TOKENS, length).tolist()
    seed = int(rng.integers(1 << 63)) if temperature else None
    params = TreeParams(
        depth=depth,
        min_node_prob=least,
        text_depth=text_depth,
        text_window=window,
        pseudocounts=tuple(pseudocounts),
    )
    known = TreeScores(scores.tokens, logits, noise, 1.2, text, seed)
    expected = grow(known, nodes, params, EOS)
    tree = NativeTree(load_kernels())(known, nodes, params, EOS)
    assert tree.mass == pytest.approx(expected.mass)
    found, wanted = by_path(tree), by_path(expected)
    # Counts give equals, of which rounding decides which is the last to find room.
    for path in found.keys() ^ wanted.keys():
        assert {**found, **wanted}[path] == pytest.approx(expected.mass[-1])
    assert all(found[path] == pytest.approx(wanted[path]) for path in found.keys() & wanted.keys())


def by_path(tree: Tree) -> dict[tuple[int, ...], float]:
    """The mass of each branch by its tokens."""
    check_parents("parents", tree.parents, len(tree.tokens))
    branches = (branch(tree.parents, node) for node in range(len(tree.tokens)))
    paths = [tuple(tree.tokens[i] for i in nodes) for nodes in branches]
    assert len(set(paths)) == len(paths)
    return dict(zip(paths, tree.mass, strict=True))


@pytest.mark.parametrize("seed", [0, 12345, (1 << 64) - 1])
def test_noise_has_the_bits_of_the_reference(seed):
    rng = np.random.default_rng(seed % 97)
    noise = best_noise(load_kernels())
    positions, tokens = rng.integers(0, 1 << 20, 300), rng.integers(0, 1 << 31, (300, 500))
    assert np.array_equal(noise(seed, positions, tokens), gumbel(seed, positions, tokens))
    turned = np.asfortranarray(tokens)
    assert np.array_equal(noise(seed, positions, turned), gumbel(seed, positions, tokens))
    with pytest.raises(ValueError, match="positions"):
        noise(seed, positions[:2], tokens)
