"""The compiled forward: its products against float64, its bits however they are asked for."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from foredraft_kernels.loader import load_kernels, supported_isas
from foredraft_kernels.memory import Arena
from tests.support.tiny_models import tiny, write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models import numerics
from verifier_service.models.compiled.weights import pack
from verifier_service.models.port import Segment, alloc

KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "bf16") if KERNELS else []
pytestmark = pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")

# Little divides evenly: a vocabulary of no whole panels, 3 query heads to a key head.
SIZES = {
    "vocab_size": 251,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}
TEXT = np.random.default_rng(0).integers(0, 251, 100).tolist()
WIDE_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 96}


@pytest.fixture(scope="module", params=["grouped", "wide heads", "biased"])
def checkpoint(request, tmp_path_factory):
    """A tiny random model."""
    path = tmp_path_factory.mktemp("native")
    if request.param == "biased":
        model = tiny("qwen2", **SIZES)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)
    else:
        sizes = SIZES | (WIDE_HEADS if request.param == "wide heads" else {})
        model = tiny(**sizes)
    model.save_pretrained(path)
    return path


@pytest.fixture(params=ISAS)
def isa(request):
    """Each instruction set that runs here."""
    return request.param


def product(isa: str, x: torch.Tensor, linear: ctypes.Structure, threads: int = 1) -> np.ndarray:
    out = np.full((x.shape[0], linear.out), np.nan, np.float32)
    assert not getattr(KERNELS, f"fd_linear_{isa}")(
        ctypes.addressof(linear), x.data_ptr(), x.shape[0], out.ctypes.data, threads
    )
    return out


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("width", "out"), [(32, 32), (96, 40), (384, 1152), (1024, 384)])
def test_products_equal_the_reference(isa, width, out, biased):
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(40, width, generator=generator).bfloat16()
    weight = torch.randn(out, width, generator=generator).bfloat16()
    bias = torch.randn(out, generator=generator).bfloat16() if biased else None
    arena = Arena(4 * weight.numel() + 65536)
    linear = pack(arena, isa, weight, bias)
    expected = x.double() @ weight.double().T + (bias.double() if biased else 0)
    # fp32 sums one after the other, then half a unit of bf16's last place.
    sums = x.double().abs() @ weight.double().abs().T + 4
    tolerance = width * 2.0**-24 * sums + 2.0**-8 * expected.abs()
    whole = product(isa, x, linear)
    assert whole.shape[1] % 32 == 0
    error = np.abs(whole[:, :out] - expected.numpy())
    assert (error <= tolerance.numpy()).all()
    assert np.array_equal(whole, torch.from_numpy(whole).bfloat16().float().numpy())
    for rows in range(1, 41):
        for threads in (1, 2, 3):
            assert np.array_equal(product(isa, x[:rows], linear, threads), whole[:rows])


def test_products_keep_what_is_not_finite_in_its_row(isa):
    weight = torch.ones(32, 32).bfloat16()
    x = torch.ones(3, 32).bfloat16()
    x[1, 5] = float("nan")
    arena = Arena(65536)
    y = product(isa, x, pack(arena, isa, weight))
    assert np.isnan(y[1]).all()
    assert (y[[0, 2]] == 32).all()


def test_a_width_that_fills_no_cache_lines_is_refused():
    with pytest.raises(ValueError, match="80 inputs"):
        pack(Arena(65536), "avx2", torch.zeros(32, 80, dtype=torch.bfloat16))


def test_a_model_that_does_not_fit_falls_back(isa, tmp_path, caplog):
    write_tiny(tmp_path, **SIZES | {"intermediate_size": 80})
    caplog.set_level("INFO")
    model = load_target(VerifierConfig(model=tmp_path, isa=isa))
    assert "forward of transformers" in caplog.text
    assert model.forward([Segment(alloc(model, 8), 0, TEXT[:8], 1)]).shape == (1, 251)


def test_the_forward_stays_near_transformers(isa, checkpoint, caplog):
    caplog.set_level("INFO")
    native = load_target(VerifierConfig(model=checkpoint, isa=isa))
    assert "forward compiled" in caplog.text
    generic = load_target(VerifierConfig(model=checkpoint, forward="transformers"))
    a, b = (m.forward([Segment(alloc(m, 100), 0, TEXT, 100)]) for m in (native, generic))
    assert a.shape == b.shape
    assert np.abs(a - b).max() < 0.05 * np.abs(b).max()


def test_rows_have_the_same_bits_for_every_count_and_number_of_threads(isa, checkpoint):
    parents = [-1, 0, 0, 1, -1, 3, 4]
    reference: list[np.ndarray] = []
    for threads in (1, 2, 3):
        model = load_target(VerifierConfig(model=checkpoint, threads=threads, isa=isa))
        assert numerics.measure(model) == "exact"
        slot = alloc(model, 100)
        whole = model.forward([Segment(slot, 0, TEXT, 100)])
        for count in range(1, 41):
            part = model.forward([Segment(slot, 60, TEXT[60 : 60 + count], count)])
            assert np.array_equal(part, whole[60 : 60 + count]), f"{count} rows"
        tree = model.forward([Segment(slot, 92, TEXT[92:], 8, parents)])
        reference = reference or [whole, tree]
        assert np.array_equal(whole, reference[0])
        assert np.array_equal(tree, reference[1])


def test_the_description_names_the_order_of_the_sums(isa, checkpoint):
    configs = (
        VerifierConfig(model=checkpoint, isa=isa),
        VerifierConfig(model=checkpoint),
        VerifierConfig(model=checkpoint, forward="transformers"),
    )
    native, best, generic = (load_target(config).info.weights_hash for config in configs)
    assert native == best != generic


@pytest.mark.skipif(len(ISAS) < 2, reason="this CPU has one instruction set of the forward's")
def test_every_instruction_set_gives_the_same_bits(checkpoint):
    seen = []
    for each in ISAS:
        model = load_target(VerifierConfig(model=checkpoint, isa=each))
        seen.append(model.forward([Segment(alloc(model, 100), 0, TEXT, 100)]))
    assert all(np.array_equal(seen[0], each) for each in seen[1:])


def test_what_stood_in_a_cache_before_does_not_matter(isa, checkpoint):
    model = load_target(VerifierConfig(model=checkpoint, isa=isa))
    clean, dirty = alloc(model, 100), alloc(model, 100)
    for cache in (model._kv.keys, model._kv.values):
        cache[dirty] = float("nan")
    for count in (1, 2, 33, 64):
        rows = [model.forward([Segment(s, 0, TEXT[:count], count)]) for s in (clean, dirty)]
        assert np.array_equal(*rows)


def test_only_the_wanted_rows_are_computed_to_the_end(isa, checkpoint):
    model = load_target(VerifierConfig(model=checkpoint, isa=isa))
    slot, other = alloc(model, 100), alloc(model, 100)
    whole = model.forward([Segment(slot, 0, TEXT, 100)])
    some = model.forward([Segment(other, 0, TEXT[:30], 2), Segment(slot, 30, TEXT[30:35], 3)])
    assert np.array_equal(some, whole[[28, 29, 32, 33, 34]])
    assert model.forward([Segment(slot, 0, TEXT, 0)]).shape == (0, 251)
    assert np.array_equal(model.forward([Segment(slot, 99, TEXT[99:], 1)]), whole[99:])


def test_a_segment_without_rows_changes_nothing(isa, checkpoint):
    model = load_target(VerifierConfig(model=checkpoint, isa=isa))
    slot, other = alloc(model, 100), alloc(model, 100)
    whole = model.forward([Segment(slot, 0, TEXT[:20], 3)])
    beside = [Segment(other, 0, TEXT[:20], 3), Segment(slot, 20, [], 0)]
    assert np.array_equal(model.forward(beside), whole)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, [251], 1),
        (0, [-1], 1),
        (64, [1], 1),  # one block holds 64
        (63, [1, 2], 1),
        (-1, [1], 1),
        (0, [1, 2], 1, [1]),
        (0, [1], 2),
    ],
)
def test_what_would_lead_beyond_an_array_is_refused(isa, checkpoint, wrong):
    model = load_target(VerifierConfig(model=checkpoint, isa=isa))
    slot = alloc(model, 60)
    with pytest.raises(ValueError, match=r"\d|vocabulary|wanted"):
        model.forward([Segment(slot, *wrong)])
