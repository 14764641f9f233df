"""The kernels are loaded only where their structs are those that Python fills."""

from __future__ import annotations

import ctypes

import pytest

from foredraft.errors import ConfigError, ForedraftError
from foredraft_kernels import loader
from foredraft_kernels.structs import ABI, Segment

needs_kernels = pytest.mark.skipif(loader.load_kernels() is None, reason="not built")


class LongerSegment(ctypes.Structure):
    _fields_ = (*Segment._fields_, ("another", ctypes.c_int64))


@needs_kernels
def test_a_mirrored_struct_with_another_field_is_refused(monkeypatch):
    longer = {**ABI["verifier"], "segment": ctypes.sizeof(LongerSegment)}
    monkeypatch.setitem(ABI, "verifier", longer)
    with pytest.raises(ForedraftError, match=r"verifier segment is 104, expected 112") as refused:
        loader.load_kernels.__wrapped__()
    assert "build them again" in str(refused.value)


@pytest.mark.parametrize("part", ["verifier", "drafter"])
@pytest.mark.parametrize("change", ["other", "missing", "unknown"])
def test_each_number_of_the_abi_is_compared(part, change):
    expected = ABI[part]
    loader.check_abi(part, expected, expected)
    for name, value in expected.items():
        found = dict(expected)
        if change == "other":
            found[name] = value + 8
        elif change == "missing":
            del found[name]
        else:
            found[f"{name}_2"] = value
        with pytest.raises(ForedraftError, match=f"{part} {name}"):
            loader.check_abi(part, found, expected)


@needs_kernels
def test_an_instruction_set_is_the_best_or_the_one_asked_for():
    kernels = loader.load_kernels()
    for products in ("bf16", "int8"):
        supported = loader.supported_isas(kernels, products)
        assert loader.choose_isa(kernels, products, "auto") == next(iter(supported), None)
        for isa in ("amx", "avx512", "avx2"):
            if isa in supported:
                assert loader.choose_isa(kernels, products, isa) == isa
            else:
                with pytest.raises(ConfigError, match=isa) as refused:
                    loader.choose_isa(kernels, products, isa)
                assert refused.value.param == "isa"


def test_without_kernels_there_is_no_instruction_set():
    assert loader.choose_isa(None, "bf16", "auto") is None
    with pytest.raises(ConfigError, match="avx2"):
        loader.choose_isa(None, "int8", "avx2")
