"""A drafter of another tokenizer, loaded from its folder: every strategy, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from foredraft.errors import ConfigError
from foredraft.messages import DraftBlock, DraftOpen
from foredraft.types import Proposal, SamplingParams
from foredraft.vocabulary import Vocabulary
from tests.support.drafters import asking
from tests.support.tokenizers_by_hand import (
    DRAFTERS_PATTERN,
    TARGETS_PATTERN,
    saved,
    trained,
)

CONFIG = BlockCausalConfig(352, 32, 2, 48, edge_rank=8, max_position_embeddings=64, max_block=6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    BlockCausalDLM(CONFIG).save(tmp_path / "drafter")
    saved(trained(DRAFTERS_PATTERN, 330), tmp_path / "tokenizer")
    saved(trained(TARGETS_PATTERN, 300, "</s>"), tmp_path / "target", "</s>")
    return tmp_path


@pytest.mark.parametrize("proposal", list(Proposal))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_strategy_drafts_in_the_targets_tokens(
    folder: Path, proposal: Proposal, temperature: float
) -> None:
    target = folder / "target" / "tokenizer.json"
    engine = load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    prefix = tuple(Vocabulary(target).write(b"def mean(values):\n    re"))
    sampling = SamplingParams(temperature, seed=4)
    handle, opened = engine.open(DraftOpen("s", prefix, sampling, proposal, 60))
    model = opened.model
    assert (model.vocab_size, model.eos_token_ids, model.mask_token_id) == (300, (0,), None)
    for _ in range(3):
        [block] = engine.propose([(handle, asking("s", prefix, len(prefix), 5))])
        assert isinstance(block, DraftBlock)
        assert all(0 <= token < 300 for token in block.tokens)
        assert block.tokens or proposal is Proposal.LOOKUP


def test_the_targets_end_is_read_beside_its_tokenizer(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    (folder / "target" / "config.json").write_text('{"eos_token_id": 9}')
    (folder / "target" / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    engine = load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    assert engine.info.eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("broken", "content", "param"),
    [
        ("target/tokenizer.json", None, "target_tokenizer"),
        ("target/tokenizer.json", "[", "target_tokenizer"),
        ("target/tokenizer.json", "{}", "target_tokenizer"),
        ("target/tokenizer_config.json", None, "target_tokenizer"),
        ("target/tokenizer_config.json", '{"eos_token": "<none>"}', "target_tokenizer"),
        ("tokenizer/tokenizer.json", None, "tokenizer"),
        ("tokenizer/tokenizer.json", "{}", "tokenizer"),
    ],
)
def test_what_cannot_be_bridged_names_its_field(
    folder: Path, broken: str, content: str | None, param: str
) -> None:
    (folder / broken).unlink() if content is None else (folder / broken).write_text(content)
    target = folder / "target" / "tokenizer.json"
    with pytest.raises(ConfigError) as caught:
        load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    assert caught.value.param == param


def test_other_kinds_of_tokenizers_are_refused(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    raw = json.loads(target.read_text())
    target.write_text(
        json.dumps(raw | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}})
    )
    with pytest.raises(ConfigError, match="byte-level"):
        load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))


def test_a_table_of_the_drafters_own_tokens_is_refused(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    values = {"model": folder / "drafter", "target_tokenizer": target}
    config = DrafterConfig.model_validate(values | {"cps": {"scorer": {"static": 0.5}}})
    with pytest.raises(ConfigError) as caught:
        load_engine(config)
    assert caught.value.param == "cps.scorer.static"
