"""A drafter's fusion of the target's hidden states: where its weights are, and what names it.

DFlash's checkpoints hold it, and those of our own drafters that read features: `fc` maps the
concatenated hidden states of some of the target's layers to one row, and `hidden_norm` normalises
that (arXiv 2602.06036). The
verifier computes with these weights, the drafter with what comes of them; that both read the same
is named by the hash.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foredraft.errors import WeightsError

WEIGHTS = ("fc.weight", "hidden_norm.weight")


class Fusion(NamedTuple):
    """What fuses the hidden states behind layers layer_ids, counted from 0, to `width` values."""

    layer_ids: tuple[int, ...]
    width: int
    rms_eps: float
    hash: str


def read_fusion(folder: Path) -> Fusion:
    """Return the fusion of a drafter's checkpoint; raise WeightsError if it has none."""
    try:
        raw: dict[str, Any] = json.loads((folder / "config.json").read_text())
        # Our own format names what it shares with DFlash's at the top.
        fields = {"rms_norm_eps": raw.get("rms_eps"), **raw, **raw.get("dflash_config", {})}
        layer_ids = tuple(int(each) for each in fields["target_layer_ids"])
        width = int(fields["hidden_size"])
        rms_eps = float(fields["rms_norm_eps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{folder.name} has no fusion that can be read: {error}") from None
    digest = hashlib.sha256(json.dumps((layer_ids, width, rms_eps)).encode())
    found = {name: (about, data) for name, about, data in _stored(folder) if name in WEIGHTS}
    for name in WEIGHTS:
        if name not in found:
            raise WeightsError(f"{folder.name} has no weights {name}")
        about, data = found[name]
        digest.update(json.dumps((name, about["dtype"], about["shape"])).encode())
        digest.update(data)
    return Fusion(layer_ids, width, rms_eps, digest.hexdigest())


def _stored(folder: Path) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Yield the fusion's tensors in safetensors files: name, dtype and shape, bytes."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            for name in WEIGHTS:
                if name in header:
                    begin, end = header[name]["data_offsets"]
                    file.seek(8 + length + begin)
                    yield name, header[name], file.read(end - begin)
