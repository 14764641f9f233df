"""Rows that see each other, and rows that stand elsewhere in the text than in the cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from foredraft_kernels.loader import load_kernels
from tests.support.attention_pair import LONGEST, Pair, tree
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models import numerics
from verifier_service.models.attention.flex import flex
from verifier_service.models.compiled.attention import NativeAttention
from verifier_service.models.port import Segment, alloc

needs_bf16 = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)
needs_kernels = pytest.mark.skipif(
    load_kernels() is None, reason="the native kernels were not built"
)
RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 256, 120).tolist()
PLACES = RNG.permutation(250)[:120].tolist()
PROMPT, AFTER = 70, 9
PARENTS = (-1, 0, 0, 2, -1)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def checkpoint(request, tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("mutual"), request.param)


def theirs(checkpoint, tokens, places, mutual):
    """Return transformers' logits where the first rows see each other and the rest is causal."""
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    seen = torch.ones(len(tokens), len(tokens)).tril()
    seen[:mutual, :mutual] = 1
    mask = torch.log(seen)[None, None]
    with torch.inference_mode():
        ran = model(
            torch.tensor([tokens]), attention_mask=mask, position_ids=torch.tensor([places])
        )
    return ran.logits[0].numpy()


@pytest.mark.parametrize("attention", ["matmul", pytest.param("auto", marks=needs_kernels)])
def test_fp32_equals_transformers(checkpoint, attention):
    model = load_target(VerifierConfig(model=checkpoint, dtype="fp32", attention=attention))
    blocks, rows = alloc(model, 120), PROMPT + AFTER
    tokens, places = TEXT[:rows], PLACES[:rows]
    expected = theirs(checkpoint, tokens, places, PROMPT)
    found = model.forward([Segment(blocks, 0, tokens, rows, (), PROMPT, places)])
    np.testing.assert_allclose(found, expected, atol=2e-4)
    later = model.forward([Segment(blocks, PROMPT, tokens[PROMPT:], AFTER, (), 0, places[PROMPT:])])
    np.testing.assert_allclose(later, expected[PROMPT:], atol=2e-4)


@pytest.mark.parametrize("forward", ["auto", "transformers"])
@needs_bf16
def test_bits_of_mutual_rows_are_their_own(checkpoint, forward):
    model = load_target(VerifierConfig(model=checkpoint, forward=forward))
    blocks, other = alloc(model, 120), alloc(model, 120)
    rows = PROMPT + AFTER
    tokens, places = TEXT[:rows], PLACES[:rows]
    whole = Segment(blocks, 0, tokens, rows, (), PROMPT, places)
    alone = model.forward([whole])
    beside = model.forward([Segment(other, 0, TEXT[:31], 31), whole])[31:]
    assert np.array_equal(alone, beside)
    # What follows may come in the same pass or later, and in any chunks.
    model.forward([Segment(blocks, 0, tokens[:PROMPT], 0, (), PROMPT, places[:PROMPT])])
    for cut in range(PROMPT, rows, 4):
        end = min(cut + 4, rows)
        chunk = Segment(blocks, cut, tokens[cut:end], end - cut, (), 0, places[cut:end])
        assert np.array_equal(model.forward([chunk]), alone[cut:end])
    # A block that sees itself and what is before it; row 0 of it sees its last.
    block = Segment(blocks, rows, TEXT[rows : rows + 16], 16, (), 16, PLACES[rows : rows + 16])
    changed = block._replace(tokens=[*block.tokens[:-1], (block.tokens[-1] + 1) % 256])
    assert not np.array_equal(model.forward([block])[0], model.forward([changed])[0])


@pytest.mark.parametrize("forward", ["auto", "transformers"])
@needs_bf16
def test_places_of_the_usual_kind_change_no_bit(checkpoint, forward):
    model = load_target(VerifierConfig(model=checkpoint, forward=forward))
    blocks = alloc(model, 120)
    model.forward([Segment(blocks, 0, TEXT[:40], 0)])
    usual = Segment(blocks, 40, TEXT[40:46], 6, PARENTS)
    placed = usual._replace(positions=(40, 41, 42, 42, 43, 41))
    assert np.array_equal(model.forward([usual]), model.forward([placed]))
    moved = usual._replace(positions=(40, 41, 42, 42, 43, 77))
    assert np.array_equal(model.forward([usual])[:5], model.forward([moved])[:5])
    assert not np.array_equal(model.forward([usual])[5], model.forward([moved])[5])


@pytest.mark.parametrize(
    "make",
    [
        lambda: flex((), LONGEST, "cpu"),
        pytest.param(lambda: NativeAttention(load_kernels()), marks=needs_kernels),
    ],
)
def test_every_backend_sees_what_the_reference_sees(make):
    pair, blocks = Pair(make()), [5, 0, 3, 9, 2]
    pair.check((blocks, 0, 150, (), 133), ([7, 11], 0, 70))
    pair.check((blocks, 150, 16, (), 16), ([7, 11], 70, 5, tree(1, 4), 1))
    pair.check((blocks, 166, 70, tree(2, 30), 33))


@needs_kernels
@needs_bf16
def test_the_compiled_code_gets_no_rows_that_make_no_sense(tmp_path):
    model = load_target(VerifierConfig(model=write_tiny(tmp_path)))
    blocks = alloc(model, 120)
    good = Segment(blocks, 0, TEXT[:6], 1, PARENTS, 1, range(6))
    model.forward([good])
    for bad in (
        good._replace(mutual=2),
        good._replace(mutual=-1),
        good._replace(positions=range(5)),
        good._replace(positions=(0, 1, 2, 3, 4, 256)),
        good._replace(positions=(0, 1, 2, 3, 4, -1)),
    ):
        with pytest.raises(ValueError, match="rows"):
            model.forward([bad])
