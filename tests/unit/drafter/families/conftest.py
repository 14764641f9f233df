"""The tiny checkpoints that several files of this folder read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from tests.support.families.dflash import (
    write_drafter,
    write_target,
)
from tests.support.families.dflash_reference import Weights


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Weights, Weights]:
    """The drafter's folder, the target's folder, and both their weights."""
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    weights = write_drafter(folder / "drafter")
    own = Qwen3ForCausalLM.from_pretrained(target, dtype=torch.float32).state_dict()
    return folder / "drafter", target, weights, own
