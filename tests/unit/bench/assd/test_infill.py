"""Holes of held-out code, and how well they are filled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench.assd.infill import SPANS, Filler, as_markdown, parses, tasks, token_f1
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine

TOKENIZER = Path("models/embedded/tokenizer/tokenizer.json")


def test_tasks_are_whole_lines_of_code_that_parses() -> None:
    for lines in SPANS.values():
        found = tasks(lines, 20)
        assert len(found) == 20
        for each in found:
            assert parses(each.before + each.hole + each.after)
            assert each.hole.count("\n") == lines and each.before.endswith("\n") and each.after
            assert all(line.strip() for line in each.hole.splitlines())
    assert tasks(1, 20) == tasks(1, 20)
    assert not {each.module for each in tasks(1, 300)} & {e.module for e in tasks(1, 300, True)}


def test_scores() -> None:
    assert parses("    if x:\n        y = 1\n") and not parses("if x:\ny = 1 +\n")
    assert token_f1([1, 2, 2], [1, 2, 2]) == 1 and token_f1([1], [2]) == 0
    assert token_f1([1, 2], [1, 2, 3, 4]) == pytest.approx(2 * 2 / 6)


def test_both_models_fill_the_same_tasks(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    size = {"vocab_size": tokenizer.get_vocab_size()}
    folders = [
        write_tiny(tmp_path / "any", any_subset={"mask_token_id": 1}, **size),
        write_tiny(tmp_path / "ar", **size),
    ]
    # Prompts of the second one are read in several passes.
    engines = [
        load_engine(VerifierConfig(model=each, kv_tokens=4096, row_budget=rows, prefill_rows=8))
        for each, rows in zip(folders, (256, 8), strict=True)
    ]
    found = Filler(tokenizer, *engines).quality("line", tasks(1, 4))
    assert [each.model for each in found] == ["any-subset", "left context alone"]
    assert found[0].tasks == found[1].tasks > 0
    assert all(0 <= figure.value <= 1 for each in found for figure in each[3:])
    assert as_markdown(found).count("\n") == 4
