"""FlexAttention on the paged pool, run operation by operation on a CPU, against the reference."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from foredraft.limits import MAX_DRAFT
from tests.support.attention_pair import BLOCK, LONGEST, POOL, Pair, tree
from tests.support.tiny_models import SIZES, in_chunks, own_logits
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.attention.flex import FlexAttention, attend_tiles, flex
from verifier_service.models.attention.flex_plan import fields, fill, shape_of, shapes
from verifier_service.models.attention.reference import (
    KvShape,
    Rows,
)
from verifier_service.models.port import Segment, alloc

TEXT = np.random.default_rng(0).integers(0, 256, 120).tolist()
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [
        pytest.param(4, 4, 16, marks=pytest.mark.slow),
        (6, 2, 32),
        pytest.param(7, 1, 64, marks=pytest.mark.slow),
    ],
)
def test_ragged_batches_and_chunked_prefill(heads, kv_heads, head_dim):
    pair = Pair(flex((), LONGEST, "cpu"), heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    one, other, third = [5, 0, 3], [9, 2], [7, 13, 1, 4]
    pair.check((one, 0, 100))
    pair.check((other, 0, 64), (one, 100, 1))
    pair.check((third, 0, 150), (one, 101, 17), (other, 64, 5))
    pair.check((third, 150, 80), (one, 118, 9))
    # Cut back: what stands behind is not seen.
    pair.check((one, 70, 3), (third, 10, 2), (other, 1, 1))


@pytest.mark.parametrize("windows", [(), (None, 20), (6, 6)])
def test_trees_beside_paths(windows):
    pair = Pair(flex(windows, LONGEST, "cpu"), windows=windows)
    one, other, third = [5, 0, 3], [9, 2, 11], [7, 13, 1, 4]
    pair.check((one, 0, 60), (other, 0, 64), (third, 0, 30))
    # A tree over the end of a block, one from its start, a prefill that ends in a tree.
    pair.check((one, 59, 17, tree(1, 16)), (other, 64, 9, tree(2, 9)), (third, 30, 70, tree(3, 40)))
    pair.keep(one, 60, [0, 2, 3])
    pair.check((one, 63, 1), (other, 64, 4))


@pytest.mark.parametrize("window", [None, 30])
def test_the_largest_tree(window):
    windows = (window, window)
    pair = Pair(flex(windows, LONGEST, "cpu"), windows=windows)
    blocks = [5, 0, 3, 9, 2, 11, 7, 13, 1]
    pair.check((blocks, 0, 50))
    pair.check((blocks, 50, MAX_DRAFT, tree(4, MAX_DRAFT)))
    chain = list(range(-1, MAX_DRAFT - 1))
    pair.check((blocks, 50, MAX_DRAFT, chain))


def test_shared_blocks():
    pair = Pair(flex((), LONGEST, "cpu"))
    pair.check(([5, 0, 3], 0, 128))
    pair.check(([5, 0, 3], 128, 5), ([5, 0, 8], 128, 7, tree(5, 6)), ([5, 6], 64, 1))


def test_blocks_that_would_not_fit_a_plan_are_refused():
    backend = flex((), LONGEST, "cpu")
    kv = backend.alloc(KvShape(1, 1, 16, torch.float32, CPU), POOL, BLOCK)
    with pytest.raises(ValueError, match="two places"):
        backend.plan([Rows(kv, [0, 1], 64, 0, 1), Rows(kv, [1], 0, 1, 1)], 2)
    with pytest.raises(ValueError, match="rows in 1 of"):
        backend.plan([Rows(kv, [0], 60, 0, 5)], 5)
    with pytest.raises(ValueError, match="of 12 blocks"):
        backend.plan([Rows(kv, range(13), 12 * 64, 0, 5)], 5)


def test_the_blocks_that_are_listed_hold_all_that_is_seen():
    """The mask alone decides on a CPU; a GPU visits the listed blocks alone."""
    draw = random.Random(6)
    kv = flex((), LONGEST, "cpu").alloc(KvShape(1, 1, 16, torch.float32, CPU), POOL, BLOCK)
    for window in (None, 3, 20, 70):
        tables = np.random.default_rng(draw.randrange(99)).permutation(12).reshape(3, 4).tolist()
        counts = [draw.choice((1, 17, 70)) for _ in tables]
        starts = [draw.randrange(256 - count) for count in counts]
        parents = [tree(count, draw.randrange(count)) for count in counts]
        firsts = np.cumsum([0, *counts]).tolist()
        batch = [
            Rows(kv, *each) for each in zip(tables, starts, firsts, counts, parents, strict=False)
        ]
        shape = shape_of(counts)
        kinds = fields(shape, POOL + 1, 9, [window])
        arrays = {
            name: np.zeros(one.shape, np.int64 if one.wide else np.int32)
            for name, one in kinds.items()
        }
        fill(arrays, batch, BLOCK, [window])
        for tile in range(shape.tiles):
            seen = visible(arrays, tile)
            listed = arrays["seen0"][tile, : arrays["count0"][tile]].tolist()
            assert len(set(listed)) == len(listed)
            assert set(np.unique(np.nonzero(seen)[1] // BLOCK)) <= set(listed)


def visible(arrays, tile) -> np.ndarray:
    """What the rows of a tile see of the pool, by the definition of the plan's arrays."""
    width = arrays["root"].shape[1]
    seen = np.zeros((width, (POOL + 1) * BLOCK), bool)
    for number, block in enumerate(arrays["table"][tile]):
        if arrays["place"][block] != number:
            continue
        for row in range(width):
            root, first = arrays["root"][tile, row], arrays["first0"][tile, row]
            bits = int.from_bytes(arrays["branch0"][tile, row].tobytes(), "little")
            for place in range(BLOCK):
                at = number * BLOCK + place
                own = at >= root and bits >> int(at - root) & 1
                seen[row, block * BLOCK + place] = first <= at < root or own
    return seen


def test_every_pass_has_one_of_the_shapes():
    known = {}
    for shape, batch in shapes(640):
        assert shape not in known
        assert shape_of(batch) == shape
        assert sum(batch) <= shape.rows <= 640
        known[shape] = batch
    draw = random.Random(7)
    for _ in range(2000):
        kinds = (1, 1, 2, 5, 6, 17, 33, 64, draw.randint(1, 100))
        counts = [draw.choice(kinds) for _ in range(draw.randint(1, 40))]
        shape = shape_of(counts)
        assert shape.rows >= sum(counts)
        assert shape.rows < max(2 * sum(counts), 65)
        assert shape in known or shape.rows > 640 or shape.tiles > 64


@pytest.mark.parametrize(
    ("config", "kind", "fields"),
    [
        (Qwen3Config, Qwen3ForCausalLM, {}),
        (MistralConfig, MistralForCausalLM, {"sliding_window": 30}),
    ],
)
def test_a_model_equals_transformers(config, kind, fields, tmp_path):
    torch.manual_seed(0)
    kind(config(**SIZES | fields)).save_pretrained(tmp_path)
    model = load_target(VerifierConfig(model=tmp_path, dtype="fp32", attention="flex"))
    slot = alloc(model, 120)
    expected = own_logits(tmp_path, TEXT, torch.float32)
    np.testing.assert_allclose(in_chunks(model, slot, TEXT, 50), expected, atol=2e-4)
    parents, nodes = (-1, 0, 0, 2, -1), TEXT[41:46]
    found = model.forward([Segment(slot, 40, [TEXT[40], *nodes], 5, parents)])
    path = model.forward([Segment(slot, 40, [TEXT[40], nodes[0], nodes[2], nodes[3]], 3)])
    np.testing.assert_allclose(found[[0, 2, 3]], path, atol=2e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_compiled_kernel_reads_the_listed_blocks():
    """Compiled, even for a CPU, FlexAttention looks at no other block."""
    compiled = torch.compile(attend_tiles, fullgraph=True, dynamic=False)
    windows = (20, None)
    pair = Pair(FlexAttention(windows, (POOL + 1) * BLOCK, compiled), windows=windows)
    one, other = [5, 0, 3], [9, 2, 11]
    pair.check((one, 0, 60), (other, 0, 64))
    pair.check((one, 59, 17, tree(1, 16)), (other, 64, 9, tree(2, 9)))
