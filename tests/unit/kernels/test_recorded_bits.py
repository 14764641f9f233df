"""The kernels compute the bits that they computed when these digests were recorded.

They are the same with each instruction set. A change of them is a change of the numerics: sessions
cannot move between the verifiers of two versions then, and forward.SUMS must get another name.
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

PRODUCTS = "ccf2d118fee30dc6143b6cd605c166a1db4ab5c80b1e2881087d8cff1c9c2d1c"
# torch computes the rotary tables among the inputs. AMX has its own order of the weights.
INPUTS = "61f35750cfece1cfcc66644a2cb3109e026931438b1d16bc385ca27212391469"
AMX_INPUTS = "05dfe037a9c36c30b5f689ef7d2251c96dec13f4c5c2f2eb2fdc13467241b34a"
LOGITS = "ef87e2d1293961755678ddbaf7c63c2efe0d860d764c7c8bb0b33c76fe9b0103"


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
    inputs = AMX_INPUTS if isa == "amx" else INPUTS
    if recorded.digest(model.passes._weights._arena.filled) != inputs:
        pytest.skip("torch computes other rotary tables here")
    assert all_in_one(recorded.passes(model, recorded.GROUPED["vocab_size"])) == LOGITS
