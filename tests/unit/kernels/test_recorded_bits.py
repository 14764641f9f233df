"""The kernels compute the bits that they computed when these digests were recorded.

They are the same with each instruction set. A change of them is a change of the numerics: sessions
could then not move between the verifiers of two versions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.micro import recorded_logits as recorded
from foredraft_kernels.loader import load_kernels, supported_isas
from verifier_service.models.compiled.forward import NativeForward

KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "bf16") if KERNELS else []
pytestmark = pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")

PRODUCTS = "cabe26eac2e903eea1bb6f7cb5cca6f1df1cc1d4199c0a1ae3708819acec2c61"
# torch computes the rotary tables among the inputs.
INPUTS = "61f35750cfece1cfcc66644a2cb3109e026931438b1d16bc385ca27212391469"
LOGITS = "fc7e4c7120f7484a9ad2d3546d20345d13e558928f7c5ac4515c819193f9445f"


def all_in_one(cases: Iterator[recorded.Case]) -> str:
    return recorded.digest([(name, recorded.digest(case)) for name, case in cases])


@pytest.mark.parametrize("isa", ISAS)
def test_products(isa):
    assert all_in_one(recorded.products(isa)) == PRODUCTS


@pytest.mark.parametrize("isa", ISAS)
def test_logits_of_prompts_drafts_and_trees(isa, tmp_path):
    recorded.write_grouped(tmp_path)
    model = recorded.verifier(isa, tmp_path, threads=2)
    assert isinstance(model.passes, NativeForward)
    if recorded.digest(model.passes._weights._arena.filled) != INPUTS:
        pytest.skip("torch computes other rotary tables here")
    assert all_in_one(recorded.passes(model, recorded.GROUPED["vocab_size"])) == LOGITS
