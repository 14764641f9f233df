"""What ends a checkpoint's texts, as its own files say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.model_files import eos_token_ids
from tests.support.checkpoints import KINDS, train_tokenizer, write_target, write_tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_ends_as_its_generation_and_its_chat_format_say(
    kind: str, tmp_path: Path
) -> None:
    made = write_target(tmp_path, kind)
    assert eos_token_ids(made.folder) == made.ends


def test_the_tokenizers_end_may_be_a_bare_text_or_unknown(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(("<a>", "<b>"))
    write_tokenizer(tmp_path, tokenizer, "<b>")
    assert eos_token_ids(tmp_path) == (1,)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<b>"}')
    assert eos_token_ids(tmp_path) == (1,)
    for text in ('{"eos_token": "<c>"}', '{"eos_token": null}', "{}"):
        (tmp_path / "tokenizer_config.json").write_text(text)
        assert eos_token_ids(tmp_path) == ()
