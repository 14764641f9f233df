"""A tree's rows have the bits of its branches fed as paths, and its kept branch those of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from foredraft.decoding.tree import ROOT, branch
from foredraft_kernels.loader import load_kernels
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models import numerics
from verifier_service.models.attention.reference import KvShape, MatmulAttention, Rows
from verifier_service.models.compiled.attention import NativeAttention
from verifier_service.models.port import Segment, alloc

TARGET = Path(__file__).parents[4] / "models/embedded/target"
VOCAB = 4096

needs_bf16 = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)
needs_kernels = pytest.mark.skipif(
    load_kernels() is None, reason="the native kernels were not built"
)


@pytest.fixture(
    scope="module",
    params=[("auto", "auto"), ("auto", "transformers"), ("matmul", "auto")],
    ids=["compiled", "native", "matmul"],
)
def target(request):
    """The shipped target with every kind of forward and attention."""
    attention, forward = request.param
    return load_target(VerifierConfig(model=TARGET, attention=attention, forward=forward))


def random_tree(rng, nodes: int) -> list[int]:
    """Parents close before their children, so that branches are long and interleaved."""
    return [int(rng.integers(max(ROOT, i - 4), i)) for i in range(nodes)]


def by_branch(model, slot: int, tree: Segment) -> np.ndarray:
    """The logits of a tree's nodes, each as the end of a path of its own."""
    last, *nodes = tree.tokens
    paths = [branch(tree.parents, node) for node in range(len(nodes))]
    texts = [[last, *(nodes[i] for i in path)] for path in paths]
    return np.concatenate([model.forward([Segment(slot, tree.start, text, 1)]) for text in texts])


@needs_bf16
# Prefixes before, at and behind the end of one of the kernel's tiles of 64 keys.
@pytest.mark.parametrize(("prefix", "nodes"), [(1, 7), (60, 15), (64, 15), (100, 31)])
def test_nodes_have_the_bits_of_their_branches(target, prefix, nodes):
    rng = np.random.default_rng(nodes)
    text = rng.integers(0, VOCAB, prefix + nodes).tolist()
    slot, other = alloc(target, 200), alloc(target, 200)
    tree = Segment(slot, prefix - 1, text[prefix - 1 :], 1 + nodes, random_tree(rng, nodes))
    for each in (slot, other):
        target.forward([Segment(each, 0, text[:prefix], 0)])
    expected = by_branch(target, other, tree)
    assert np.array_equal(target.forward([tree])[1:], expected)
    # Prefill and tree in one segment, of a slot that holds something else.
    whole = tree._replace(start=0, tokens=text)
    target.forward([Segment(slot, 0, text[::-1], 0)])
    assert np.array_equal(target.forward([whole])[1:], expected)
    target.pool.give(slot)
    target.pool.give(other)


@needs_bf16
def test_neighbours_do_not_change_a_trees_bits(target):
    rng = np.random.default_rng(5)
    trees, expected = [], []
    for prefix, nodes in ((40, 15), (3, 1), (90, 24), (64, 9)):
        slot = alloc(target, 200)
        text = rng.integers(0, VOCAB, prefix + nodes).tolist()
        target.forward([Segment(slot, 0, text[:prefix], 0)])
        shape = random_tree(rng, nodes)
        trees.append(Segment(slot, prefix - 1, text[prefix - 1 :], nodes, shape))
        expected.append(by_branch(target, slot, trees[-1]))
    path = Segment(alloc(target, 200), 0, text, 5)
    prefill = Segment(alloc(target, 200), 0, text[:50], 0)
    own = target.forward([path])
    batch = [*trees[:2], path, prefill, *trees[2:]]
    expected.insert(2, own)
    assert np.array_equal(target.forward(batch), np.concatenate(expected))


@needs_bf16
def test_decoding_goes_on_behind_the_kept_branch(target):
    rng = np.random.default_rng(6)
    text = rng.integers(0, VOCAB, 60).tolist()
    slot, fresh = alloc(target, 200), alloc(target, 200)
    target.forward([Segment(slot, 0, text[:-1], 0)])
    moved = 0
    for nodes in (15, 9, 31, 4):
        tokens, shape = rng.integers(0, VOCAB, nodes).tolist(), random_tree(rng, nodes)
        target.forward([Segment(slot, len(text) - 1, [text[-1], *tokens], 0, shape)])
        kept = branch(shape, int(rng.integers(nodes // 2, nodes)))
        moved += kept != list(range(len(kept)))
        target.keep(slot, len(text), kept)
        text += [*(tokens[node] for node in kept), int(rng.integers(VOCAB))]
        expected = target.forward([Segment(fresh, 0, text, 1)])
        found = target.forward([Segment(slot, len(text) - 1, text[-1:], 1)])
        assert np.array_equal(found, expected)
    assert moved


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(3, 3, 64), (6, 2, 32), (2, 1, 96)])
def test_the_kernel_follows_branches(dtype, heads, kv_heads, head_dim):
    prefix, nodes, scale = 55, 40, head_dim**-0.5
    rows = prefix + nodes
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(n, rows, head_dim, generator=generator).to(dtype)
        for n in (heads, kv_heads, kv_heads)
    )
    shape = KvShape(2, kv_heads, head_dim, dtype, torch.device("cpu"))
    parents = random_tree(np.random.default_rng(0), nodes)
    native, reference = NativeAttention(load_kernels()), MatmulAttention()
    found = []
    for backend in (native, reference):
        batch = [Rows(backend.alloc(shape, 2, 64), [1, 0], 0, 0, rows, parents)]
        found.append(backend.attend(1, q, k, v, backend.plan(batch, rows), scale))
    tolerance = 0.03 if dtype is torch.bfloat16 else 2e-6
    torch.testing.assert_close(*found, atol=tolerance, rtol=0)
    kv = native.alloc(shape, 2, 64)
    for node in range(nodes):
        seen = [*range(prefix), *(prefix + i for i in branch(parents, node))]
        path = [x[:, seen] for x in (q, k, v)]
        plan = native.plan([Rows(kv, [0, 1], 0, 0, len(seen))], len(seen))
        own = native.attend(1, *path, plan, scale)
        assert torch.equal(found[0][prefix + node], own[-1])


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_both_caches_keep_the_same_rows(dtype):
    shape = KvShape(2, 3, 32, dtype, torch.device("cpu"))
    native, reference = NativeAttention(load_kernels()), MatmulAttention()
    ours, theirs = native.alloc(shape, 3, 64), reference.alloc(shape, 3, 64)
    generator = torch.Generator().manual_seed(0)
    for their, our in ((theirs.keys, ours.keys.transpose(3, 4)), (theirs.values, ours.values)):
        their.copy_(torch.randn(their.shape, generator=generator))
        our.copy_(their)
    table = [2, 0]
    before = theirs.keys[table].transpose(0, 2).flatten(2, 3)
    for backend, kv in ((native, ours), (reference, theirs)):
        backend.keep(kv, table, 60, [0, 2, 3, 9])
    assert torch.equal(ours.keys.transpose(3, 4), theirs.keys)
    assert torch.equal(ours.values, theirs.values)
    moved = [*range(60), 60, 62, 63, 69, *range(64, 128)]
    after = theirs.keys[table].transpose(0, 2).flatten(2, 3)
    assert torch.equal(after, before[:, :, moved])


@needs_kernels
def test_exact_is_not_claimed_where_trees_differ(tmp_path, monkeypatch):
    model = load_target(VerifierConfig(model=write_tiny(tmp_path)))
    assert numerics.measure(model) == "exact"
    forward = model.forward

    def blind(segments):
        """Trees as if they were paths."""
        return forward([segment._replace(parents=()) for segment in segments])

    monkeypatch.setattr(model, "forward", blind)
    assert numerics.measure(model) != "exact"
