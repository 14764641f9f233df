"""From a folder on disk to blocks, through the real engine."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from foredraft.errors import ConfigError, WeightsError
from foredraft.messages import DraftBlock, DraftOpen
from foredraft.strict import parse
from foredraft.types import Proposal, SamplingParams
from tests.support.drafters import asking

CONFIG = BlockCausalConfig(64, 32, 2, 48, edge_rank=8, max_position_embeddings=64, max_block=6)
PREFIX = (5, 9, 33, 7, 12, 50, 3, 9)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    BlockCausalDLM(CONFIG).save(tmp_path / "pair" / "drafter")
    (tmp_path / "pair" / "tokenizer").mkdir()
    (tmp_path / "pair" / "tokenizer" / "tokenizer.json").write_text("{}")
    return tmp_path / "pair" / "drafter"


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
@pytest.mark.parametrize("strategy", list(Proposal))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_strategy_drafts_the_same_block_again(folder, dtype, strategy, temperature):
    engine = load_engine(DrafterConfig(model=folder, dtype=dtype, cache_tokens=128))
    sampling = SamplingParams(temperature=temperature, top_p=0.95, seed=4)
    blocks = []
    for name in ("a", "b"):
        handle, opened = engine.open(DraftOpen(name, PREFIX, sampling, strategy, 60))
        assert opened.max_draft_tokens == {"tree": 63, "lookup": 15}.get(strategy, 5)
        assert opened.model.tokenizer_hash == hashlib.sha256(b"{}").hexdigest()
        [block] = engine.propose([(handle, asking(name, PREFIX, 8, 5))])
        assert isinstance(block, DraftBlock)
        blocks.append((block.tokens, block.generated_len, block.guesses))
        assert all(0 <= t < 64 and t != CONFIG.mask_token_id for t in block.tokens)
    assert blocks[0] == blocks[1]
    assert engine.sessions == 2


def test_without_edges_a_slot_does_not_depend_on_the_token_before(folder):
    """Changing the sampling changes what is drawn at a slot, not the next slot's distribution."""

    def q(edges, seed):
        engine = load_engine(DrafterConfig(model=folder, dtype="float32", edges=edges))
        sampling = SamplingParams(temperature=1.5, seed=seed)
        handle, _ = engine.open(DraftOpen("s", PREFIX, sampling, Proposal.SAMPLED, 60))
        [block] = engine.propose([(handle, asking("s", PREFIX, 8, 4))])
        return block.tokens, block.q

    alone = [q(False, seed) for seed in range(4)]
    assert len({tokens for tokens, _ in alone}) > 1
    assert len({qs[1] for _, qs in alone}) == 1
    assert len({qs[1] for _, qs in (q(True, seed) for seed in range(4))}) > 1


def write_manifest(folder, change=""):
    files = [*folder.iterdir(), folder.parent / "tokenizer" / "tokenizer.json"]
    digests = {
        f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    if change:
        digests[change] = "0" * 64
    (folder.parent / "manifest.json").write_text(json.dumps(digests))


def test_a_manifest_is_checked(folder):
    write_manifest(folder)
    load_engine(DrafterConfig(model=folder))
    # Another folder's file is not ours to read.
    write_manifest(folder, "target/model.safetensors")
    load_engine(DrafterConfig(model=folder))
    for name in ("drafter/model.safetensors", "drafter/missing"):
        write_manifest(folder, name)
        with pytest.raises(WeightsError):
            load_engine(DrafterConfig(model=folder))


def test_weights_that_are_not_finite_are_refused(folder):
    model = BlockCausalDLM.load(folder, torch.float32)
    model.norm.weight.fill_(torch.nan)
    model.save(folder)
    with pytest.raises(WeightsError):
        load_engine(DrafterConfig(model=folder, dtype="float32"))


def test_an_unknown_key_is_named():
    with pytest.raises(ConfigError) as caught:
        parse(DrafterConfig, {"model": "x", "cps": {"scorer": {"bigram": 1}}})
    assert caught.value.param == "cps.scorer.bigram"


def test_kenlm_needs_its_path(folder):
    config = parse(DrafterConfig, {"model": folder, "cps": {"scorer": {"kenlm": 0.5}}})
    with pytest.raises(ConfigError):
        load_engine(config)


def test_a_kenlm_model_that_cannot_be_read_is_named(folder):
    pytest.importorskip("kenlm", reason="the kenlm extra is not installed")
    scorer = {"kenlm": 0.5, "kenlm_path": str(folder / "missing.arpa")}
    config = parse(DrafterConfig, {"model": folder, "cps": {"scorer": scorer}})
    with pytest.raises(ConfigError) as caught:
        load_engine(config)
    assert caught.value.param == "cps.scorer.kenlm_path"


@pytest.mark.slow
def test_the_client_needs_no_torch_and_the_service_no_ray():
    code = (
        "import sys, drafter_service.client; assert 'torch' not in sys.modules;"
        "import drafter_service.server; assert 'ray' not in sys.modules;"
        "assert not [m for m in sys.modules if m.startswith('verifier_service')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
