"""`foredraft audit` and the bench's pieces on a target that is not ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.config import ForedraftConfig
from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft.types import Proposal
from foredraft_cli.audit.engines import audit, is_bug
from foredraft_cli.prompts.held_out import fitted, prompts
from tests.support.checkpoints import MAX_LEN, train_tokenizer, write_drafter, write_target


async def test_the_audit_runs_on_a_target_of_another_tokenizer(tmp_path: Path) -> None:
    made = write_target(tmp_path / "target", "qwen2")
    drafter = write_drafter(tmp_path / "drafter", made)
    services = {
        "verifier": {"service": {"model": str(made.folder), "kv_tokens": 2048}},
        "drafter": {"service": {"model": str(drafter), "dtype": "float32", "max_mask_slots": 8}},
    }
    config = parse(ForedraftConfig, services)
    numerics, findings = await audit(config, prompts(1), 12, 1)
    assert {finding.mode for finding in findings} == {*Proposal, "ngram+tree"}
    assert not any(is_bug(numerics, found) for each in findings for found in each.divergences)


def test_a_prompt_leaves_room_for_the_text() -> None:
    tokenizer = train_tokenizer(("<e>",))
    ids = tokenizer.encode("a b " * MAX_LEN).ids
    assert fitted("a b " * MAX_LEN, tokenizer, MAX_LEN, 56) == tuple(ids[-200:])
    assert fitted("a b", tokenizer, MAX_LEN, 56) == tuple(tokenizer.encode("a b").ids)
    with pytest.raises(ConfigError, match="max_tokens"):
        fitted("a b", tokenizer, MAX_LEN, MAX_LEN)


def test_prompts_may_be_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in "abcd"))
    assert prompts(2, file) == ["a", "c"]
    for text in ("{", '{"txt": 1}', "[]"):
        file.write_text(text)
        with pytest.raises(ConfigError) as refused:
            prompts(1, file)
        assert str(file) in str(refused.value)
    with pytest.raises(ConfigError):
        prompts(1, tmp_path / "nothing")
