"""Fused features as bytes: their check against torch, what names their fusion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from foredraft.errors import InvalidRequest, WeightsError
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import check, is_finite, size


def test_every_bfloat16_is_judged_as_torch_judges_it() -> None:
    every = torch.arange(1 << 16).to(torch.int32).sub(1 << 15).to(torch.int16)
    finite = every.view(torch.bfloat16).isfinite().tolist()
    found = [is_finite(value.to_bytes(2, "little", signed=True)) for value in every.tolist()]
    assert found == finite and not all(finite)
    good = [v for v, sound in zip(every.tolist(), finite, strict=True) if sound]
    data = b"".join(value.to_bytes(2, "little", signed=True) for value in good)
    assert is_finite(data) and is_finite(b"")
    for at in (0, 4000, len(data)):
        assert not is_finite(data[:at] + b"\x80\xff" + data[at:])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(11), "features of 2 tokens must have 12 bytes, got 11"),
        (bytes(14), "must have 12 bytes"),
        (b"", "must have 12 bytes"),
        (bytes(10) + b"\xc0\x7f", "features are not finite"),
    ],
)
def test_what_is_not_due_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        check(data, 2, 3)
    assert refused.value.param == "features"
    check(bytes(size(2, 3)), 2, 3)


def test_a_checkpoint_without_a_fusion_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no fusion"):
        read_fusion(tmp_path)
    about = {"dflash_config": {"target_layer_ids": [1]}, "hidden_size": 2, "rms_norm_eps": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(about))
    save_file({"fc.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"hidden_norm\.weight"):
        read_fusion(tmp_path)
    save_file({"hidden_norm.weight": torch.ones(2)}, tmp_path / "more.safetensors")
    found = read_fusion(tmp_path)
    assert (found.layer_ids, found.width, found.rms_eps) == ((1,), 2, 1e-6)
