"""Which prompts a report is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.papers import prompts
from bench.papers.experiments.families import CODE_FAMILIES, Family
from bench.papers.prompts import prompts_for
from deployments.config import model_path
from foredraft.chat_template import ChatTemplate
from foredraft_cli.prompts import human_eval
from foredraft_cli.prompts.held_out import DEVELOPMENT
from foredraft_cli.prompts.human_eval import Task


def test_a_base_model_gets_code_of_modules_that_no_setting_was_tried_on() -> None:
    found = prompts_for(Path(model_path("models/embedded/tokenizer/tokenizer.json")), 4)
    assert {prompt.family for prompt in found} == set(CODE_FAMILIES)
    assert not DEVELOPMENT & {prompt.module for prompt in found}
    assert all(prompt.source.startswith(prompt.module) for prompt in found)


def test_a_chat_model_gets_tasks_and_chats_in_its_template(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    template = ChatTemplate("{{ messages[0].content }}|", {})
    monkeypatch.setattr(prompts, "read_chat_template", lambda folder: template)
    tasks = [Task(f"HumanEval/{number}", f"def f{number}", "f", "") for number in range(6)]
    monkeypatch.setattr(human_eval, "tasks", lambda: tasks)
    found = prompts_for(tmp_path / "tokenizer.json", 2)
    assert [prompt.family for prompt in found] == [Family.HUMAN_EVAL, Family.CHAT] * 2
    assert [p.module for p in found if p.family is Family.HUMAN_EVAL] == [
        "HumanEval/1",
        "HumanEval/3",
    ]
    assert all(prompt.text.endswith("|") for prompt in found)
    # Each task is a module of its own.
    assert len({prompt.module for prompt in found}) == 4
