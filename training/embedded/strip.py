"""Leaves a drafter's fusion of the target's states out: it then asks for none."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from foredraft.features.fusion import WEIGHTS


def strip(source: Path, directory: Path) -> None:
    """Writes the drafter in `source` without its fusion, all other weights as they are."""
    weights = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    directory.mkdir(parents=True, exist_ok=True)
    kept = {name: tensor for name, tensor in weights.items() if name not in WEIGHTS}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})
    config["target_layer_ids"] = []
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
