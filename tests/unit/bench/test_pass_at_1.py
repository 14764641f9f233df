"""Functions are taken from answers as they come, and scored by HumanEval's own tests."""

from __future__ import annotations

import pytest

from bench.compare.code_block import code_block, definitions, program
from bench.compare.pass_at_1 import Score, Scored, score
from bench.compare.rows import Run, Setting, row
from bench.compare.sandbox import Outcome
from foredraft.client import CompletionResult
from foredraft_cli.prompts.human_eval import Task

TASK = Task(
    "HumanEval/1",
    'from typing import List\n\n\ndef double(xs: List[int]) -> List[int]:\n    """ Twice. """\n',
    "double",
    "def check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n",
)
GOOD = "def double(xs: List[int]) -> List[int]:\n    return [2 * x for x in xs]\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("Here:\n```python\ndef f():\n    pass\n```\nIt works.", "def f():\n    pass\n"),
        ("```\ndef f():\n    pass\n```", "def f():\n    pass\n"),
        ("```python\nf(1)\n```\n```python\ndef f(x):\n    pass\n```", "def f(x):\n    pass\n"),
        ("```py\nx = 1\n```\nand\n```\ny = 2\n```", "x = 1\n"),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("1. So:\n   ```python\n   def f():\n       pass\n   ```\n", "def f():\n    pass\n"),
        ("def f():\n    pass", "def f():\n    pass"),
    ],
    ids=["one", "unnamed", "the one that defines it", "first", "open", "indented", "none"],
)
def test_the_code_of_an_answer(answer: str, code: str) -> None:
    assert code_block(answer, "f") == code


def test_calls_that_show_its_use_are_dropped() -> None:
    code = "import math\nN = 3\ndef f(x):\n    return x\nprint(f(1))\nassert f(1) == 2\n"
    assert definitions(code) == "import math\nN = 3\n\ndef f(x):\n    return x"
    assert definitions("def f(:") == "def f(:"


def answered(text: str, *tokens: int) -> CompletionResult:
    return CompletionResult(text, tokens, 1.0, {})


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (f"```python\n{GOOD}```", Outcome.PASSED),
        (f"```python\n{GOOD}print(double(None))\n```", Outcome.PASSED),
        (f"```python\n{GOOD.replace('2 *', '3 *')}```", Outcome.FAILED),
        ("I cannot do this.", Outcome.FAILED),
        ("```python\ndef other():\n    pass\n```", Outcome.FAILED),
    ],
)
def test_an_answer_is_scored_by_the_tasks_test(answer: str, outcome: Outcome) -> None:
    scored = score(TASK, answered(answer, 1, 2), answered(answer, 1, 3))
    assert scored == Scored("HumanEval/1", False, outcome, outcome, answer)


def test_helpers_of_the_prompt_are_there() -> None:
    prompt = "def helper(x):\n    return x + 1\n\n\ndef f(x):\n    ''' One more. '''\n"
    text = program(prompt, "```\ndef f(x):\n    return helper(x)\n```", "f", "def check(f): f(1)")
    names: dict[str, object] = {}
    exec(text, names)
    assert names["f"](1) == 2


def test_the_score_says_both_shares_and_whether_the_answers_are_the_same() -> None:
    passed, failed = Outcome.PASSED, Outcome.FAILED
    tasks = (Scored("a", True, passed, passed, ""), Scored("b", False, failed, passed, ""))
    runs = [Run((1,), 1.0), Run((2,), 1.0)]
    speed = row(Setting("smollm2", "humaneval", "cluster", 0.0, 512), "tree", runs, runs)
    found = Score(tasks, speed)
    assert "plain 50.0%, speculative 100.0%; the same completion in 1 of 2" in found.summary()
    values = found.as_json()
    assert values["pass_at_1"] == {"plain": 0.5, "speculative": 1.0}
    assert (values["identical"], len(values["tasks"])) == (0.5, 2)
