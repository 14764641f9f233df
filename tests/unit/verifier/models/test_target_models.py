"""Checkpoints as target models: against transformers' own forward, and bit by bit."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    T5Config,
)

from foredraft.decoding.tree import branch
from foredraft.errors import ConfigError, WeightsError
from foredraft.model_files import eos_token_ids
from foredraft_kernels.loader import load_kernels
from tests.support.tiny_models import KINDS, SIZES, in_chunks, own_logits, write_tiny
from tests.support.verifiers import VOCAB, CountingModel
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine, load_target
from verifier_service.models import numerics
from verifier_service.models.attention.reference import KvShape, MatmulAttention, Rows
from verifier_service.models.checkpoint import windows
from verifier_service.models.compiled.attention import NativeAttention
from verifier_service.models.port import Segment, alloc
from verifier_service.models.transformers_forward import filled

_MIXED = ["sliding_attention", "full_attention"]
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
TEXT = np.random.default_rng(0).integers(0, 256, 120).tolist()

needs_bf16 = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)
needs_kernels = pytest.mark.skipif(
    load_kernels() is None, reason="the native kernels were not built"
)


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request, tmp_path_factory):
    """A tiny random model in the Hugging Face format."""
    return write_tiny(tmp_path_factory.mktemp("pair") / request.param, request.param)


@pytest.mark.parametrize("attention", ["auto", "matmul"])
def test_fp32_equals_transformers(checkpoint, attention):
    model = load_target(VerifierConfig(model=checkpoint, dtype="fp32", attention=attention))
    expected = own_logits(checkpoint, TEXT, torch.float32)
    for size in (120, 17, 1):
        slot = alloc(model, 120)
        np.testing.assert_allclose(in_chunks(model, slot, TEXT, size), expected, atol=2e-4)
        model.pool.give(slot)


@pytest.mark.parametrize(
    ("config", "kind", "fields"),
    [
        (MistralConfig, MistralForCausalLM, {"sliding_window": 200}),
        (MistralConfig, MistralForCausalLM, {"sliding_window": 30}),
        (GemmaConfig, GemmaForCausalLM, {}),
        (Gemma3TextConfig, Gemma3ForCausalLM, {"sliding_window": 200}),
        (Gemma3TextConfig, Gemma3ForCausalLM, {"sliding_window": 30, "layer_types": _MIXED}),
        (Qwen3MoeConfig, Qwen3MoeForCausalLM, _EXPERTS),
    ],
)
def test_other_families_equal_transformers_too(config, kind, fields, tmp_path):
    torch.manual_seed(0)
    kind(config(**SIZES | fields)).save_pretrained(tmp_path)
    model = load_target(VerifierConfig(model=tmp_path, dtype="fp32"))
    expected = own_logits(tmp_path, TEXT, torch.float32)
    for size in (120, 17):
        found = in_chunks(model, alloc(model, 120), TEXT, size)
        np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_tree_under_windows_has_the_logits_of_its_branches(tmp_path):
    torch.manual_seed(0)
    windowed = MistralConfig(**SIZES | {"sliding_window": 12})
    MistralForCausalLM(windowed).save_pretrained(tmp_path)
    model = load_target(VerifierConfig(model=tmp_path, dtype="fp32"))
    slot = alloc(model, 120)
    model.forward([Segment(slot, 0, TEXT[:40], 0)])
    parents, nodes = (-1, 0, 0, 2, -1), TEXT[41:46]
    found = model.forward([Segment(slot, 40, TEXT[40:46], 5, parents)])
    for node, row in enumerate(found):
        path = [TEXT[40], *(nodes[i] for i in branch(parents, node))]
        own = model.forward([Segment(slot, 40, path, 1)])[0]
        np.testing.assert_allclose(row, own, atol=2e-4)


def test_layers_of_another_kind_are_refused(tmp_path):
    chunked = Gemma3TextConfig(**SIZES | {"layer_types": ["chunked_attention", "full_attention"]})
    with pytest.raises(WeightsError, match="chunked_attention"):
        windows(chunked)


def test_attention_that_is_not_ours_is_refused(tmp_path):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    GptOssForCausalLM(GptOssConfig(**SIZES | experts)).save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="sinks"):
        load_engine(VerifierConfig(model=tmp_path, dtype="fp32"))


@needs_bf16
@pytest.mark.parametrize("forward", ["auto", "transformers"])
def test_bf16_stays_near_transformers(checkpoint, forward):
    model = load_target(VerifierConfig(model=checkpoint, forward=forward))
    slot = alloc(model, 120)
    expected = own_logits(checkpoint, TEXT, torch.float32)
    error = np.abs(in_chunks(model, slot, TEXT, 120) - expected).max()
    theirs = np.abs(own_logits(checkpoint, TEXT, torch.bfloat16) - expected).max()
    assert error < 1.5 * theirs


@pytest.mark.parametrize("attention", ["auto", pytest.param("flex", marks=pytest.mark.slow)])
def test_fp16_stays_near_transformers(checkpoint, attention):
    fields = {"dtype": "fp16", "attention": attention, "kv_tokens": 1024}
    model = load_target(VerifierConfig(model=checkpoint, **fields))
    expected = own_logits(checkpoint, TEXT, torch.float32)
    theirs = own_logits(checkpoint, TEXT, torch.float16)
    error = np.abs(theirs - expected).max()
    for size in (120, 17, 1):
        slot = alloc(model, 120)
        found = in_chunks(model, slot, TEXT, size)
        assert np.abs(found - expected).max() < 2.5 * error
        assert np.abs(found - theirs).max() < 2 * error
        model.pool.give(slot)


def test_native_attention_in_fp16_is_refused(checkpoint):
    with pytest.raises(ConfigError, match="native") as refused:
        load_target(VerifierConfig(model=checkpoint, dtype="fp16", attention="native"))
    assert refused.value.param == "attention"


@needs_bf16
@pytest.mark.parametrize("attention", ["auto", "matmul"])
def test_bf16_logits_have_the_same_bits_however_they_are_batched(checkpoint, attention):
    model = load_target(VerifierConfig(model=checkpoint, attention=attention))
    slot = alloc(model, 120)
    reference = in_chunks(model, slot, TEXT, 120)
    for size in range(1, 33):
        # The slot keeps what the last pass wrote: truncation is overwriting.
        chunked = in_chunks(model, slot, TEXT[:64], size)
        assert np.array_equal(chunked, reference[:64]), f"chunks of {size}"
    others = [alloc(model, 120) for _ in range(3)]
    for i, other in enumerate(others):
        model.forward([Segment(other, 0, TEXT[i : i + 50 + i], 1)])
    for rows in (1, 2, 9, 17):
        model.forward([Segment(slot, 0, TEXT[:80], 0)])
        neighbours = [Segment(other, 50, TEXT[:7], 7) for other in others]
        prefill = Segment(alloc(model, 120), 0, TEXT[:60], 0)
        batch = [*neighbours[:1], Segment(slot, 80, TEXT[80 : 80 + rows], rows), prefill]
        beside = model.forward([*batch, *neighbours[1:]])[7 : 7 + rows]
        assert np.array_equal(beside, reference[80 : 80 + rows])
    assert numerics.measure(model) == "exact"


@needs_bf16
@needs_kernels
def test_the_compiled_forward_agrees_with_the_generic_one(checkpoint):
    compiled = load_target(VerifierConfig(model=checkpoint))
    generic = load_target(VerifierConfig(model=checkpoint, forward="transformers"))
    a = in_chunks(compiled, alloc(compiled, 120), TEXT, 120)
    b = in_chunks(generic, alloc(generic, 120), TEXT, 120)
    assert np.abs(a - b).max() < 0.05 * np.abs(b).max()


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(3, 3, 64), (6, 2, 32), (2, 1, 96)])
def test_the_kernel_computes_attention(dtype, heads, kv_heads, head_dim):
    rows, scale = 150, head_dim**-0.5
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(rows, n, head_dim, generator=generator).to(dtype).transpose(0, 1)
        for n in (heads, kv_heads, kv_heads)
    )
    shape = KvShape(2, kv_heads, head_dim, dtype, torch.device("cpu"))
    native, reference = NativeAttention(load_kernels()), MatmulAttention()
    # In blocks of the pool in any order.
    table = [5, 0, 3]
    whole = [Rows(native.alloc(shape, 6, 64), table, 0, 0, rows)]
    # Whatever stood in the cache before must not matter.
    whole[0].kv.keys.fill_(float("nan"))
    whole[0].kv.values.fill_(float("nan"))
    ours = native.attend(1, q, k, v, native.plan(whole, rows), scale)
    other = [Rows(reference.alloc(shape, 3, 64), [2, 1, 0], 0, 0, rows)]
    theirs = reference.attend(1, q, k, v, reference.plan(other, rows), scale)
    tolerance = 0.03 if dtype is torch.bfloat16 else 2e-6
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)
    for size in (1, 2, 3, 4, 5, 17, 33, 64):
        kv = native.alloc(shape, 3, 64)
        chunks = []
        for i in range(0, rows, size):
            part = slice(i, i + size)
            count = len(range(rows)[part])
            plan = native.plan([Rows(kv, [1, 2, 0], i, 0, count)], count)
            chunks.append(native.attend(1, q[:, part], k[:, part], v[:, part], plan, scale))
        assert torch.equal(torch.cat(chunks), ours), f"chunks of {size}"


@needs_kernels
def test_a_nan_in_a_query_comes_out():
    shape = KvShape(1, 1, 32, torch.float32, torch.device("cpu"))
    native = NativeAttention(load_kernels())
    q = torch.zeros(1, 2, 32)
    q[0, 1, 5] = float("nan")
    k = torch.ones(1, 2, 32)
    plan = native.plan([Rows(native.alloc(shape, 1, 64), [0], 0, 0, 2)], 2)
    out = native.attend(0, q, k, k, plan, 1.0)
    assert not out[0].isnan().any()
    assert out[1].isnan().all()


def test_batches_come_in_few_sizes():
    sizes = [filled(rows) for rows in range(1, 1025)]
    assert all(size >= rows for rows, size in enumerate(sizes, start=1))
    assert sizes[:20] == list(range(1, 21))
    assert len({size for size in sizes if size <= 256}) == 32
    assert filled(1, 4) == 4


def test_a_model_without_finite_logits_is_refused():
    model = CountingModel()
    model.poisoned.update(range(VOCAB))
    with pytest.raises(WeightsError, match="not finite"):
        numerics.measure(model)


def test_exact_refuses_to_start_where_it_is_not(checkpoint, monkeypatch):
    monkeypatch.setattr(numerics, "measure", lambda model: "tolerance 0.1")
    with pytest.raises(ConfigError, match=r"tolerance 0\.1"):
        load_engine(VerifierConfig(model=checkpoint, numerics="exact"))
    info = load_engine(VerifierConfig(model=checkpoint)).info
    assert info.numerics == "tolerance 0.1"
    assert info.eos_token_ids == eos_token_ids(checkpoint)


def test_altered_and_unlisted_weights_are_refused(checkpoint):
    manifest = checkpoint.parent / "manifest.json"
    names = [file for file in checkpoint.iterdir() if file.suffix == ".safetensors"]
    hashes = {
        f"{checkpoint.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()
        for file in names
    }
    try:
        manifest.write_text(json.dumps(hashes))
        load_target(VerifierConfig(model=checkpoint, dtype="fp32"))
        manifest.write_text(json.dumps(dict.fromkeys(hashes, "0" * 64)))
        with pytest.raises(WeightsError, match="differs"):
            load_target(VerifierConfig(model=checkpoint))
        manifest.write_text("{}")
        with pytest.raises(WeightsError, match="not in its manifest"):
            load_target(VerifierConfig(model=checkpoint))
    finally:
        manifest.unlink()


def test_what_is_not_a_decoder_checkpoint_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"config\.json"):
        load_target(VerifierConfig(model=tmp_path))
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="decoder-only"):
        load_target(VerifierConfig(model=tmp_path))
    LlamaConfig(**SIZES).save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(WeightsError, match="safetensors"):
        load_target(VerifierConfig(model=tmp_path))
