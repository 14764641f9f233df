"""The served model under the algorithms as printed: the rows that the engine decides by."""

from __future__ import annotations

import numpy as np
import pytest

from bench.assd.algorithm_1 import KeyedChance, rejection
from bench.assd.paged import PagedJoint
from bench.assd.port import Query, sequential
from foredraft.layout import Layout
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from tests.support.tiny_models import write_tiny
from tests.support.verifiers import decoded
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_target
from verifier_service.models import numerics
from verifier_service.models.paged import PagedModel
from verifier_service.targets.engine import VerifierEngine

MASK = 1
LAYOUT, PROMPT = Layout(30, (0, 1, 9, 10, 29)), [7, 8, 9, 10, 11]
pytestmark = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PagedModel:
    folder = write_tiny(tmp_path_factory.mktemp("any"), any_subset={"mask_token_id": MASK})
    return load_target(VerifierConfig(model=folder, kv_tokens=4096))


def served(model: PagedModel, sampling: SamplingParams) -> tuple[int, ...]:
    """What the verifier decodes plainly."""
    engine = VerifierEngine(
        model, KvBlocks(model.pool, block_tokens=model.block_tokens, max_sessions=1)
    )
    left = LAYOUT.length - len(PROMPT)
    handle = engine.open(VerifyOpen("s", tuple(PROMPT), sampling, left, 0, layout=LAYOUT))
    found = decoded(engine, handle, PROMPT, left)
    engine.close(handle)
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_sequential_decoding_is_the_servers(model: PagedModel, temperature: float) -> None:
    sampling = SamplingParams(temperature, seed=3)
    joint = PagedJoint(model, LAYOUT.length, MASK)
    assert sequential(joint, LAYOUT, PROMPT, sampling).tokens == served(model, sampling)
    greedy = rejection(joint, LAYOUT, PROMPT, SamplingParams(), 5, KeyedChance(0)).tokens
    assert greedy == served(model, SamplingParams())
    joint.close()
    assert model.pool.available == model.pool.total


def test_kept_content_changes_no_row(model: PagedModel) -> None:
    rng, kept = np.random.default_rng(0), PagedJoint(model, LAYOUT.length, MASK)
    content = list(PROMPT)
    for _ in range(12):
        content = content[: int(rng.integers(5, len(content) + 1))]
        content += rng.integers(2, 200, int(rng.integers(0, 5))).tolist()
        content = content[:28]
        seen = sorted(rng.integers(5, len(content) + 1, 3).tolist())
        queries = [Query(int(rng.integers(each, 30)), each) for each in seen]
        fresh = PagedJoint(model, LAYOUT.length, MASK)
        fresh_rows = fresh.logits(LAYOUT, content, queries)
        assert np.array_equal(kept.logits(LAYOUT, content, queries), fresh_rows)
        fresh.close()
    kept.close()
