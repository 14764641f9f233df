"""Cutting held-out prompts into task families."""

from __future__ import annotations

import json

import pytest

from bench.papers.experiments.families import CODE_FAMILIES, Family, cuts, inside_strings, select
from deployments.config import model_path

CONTEXT = "# " + 30 * "context " + "\n"
CODE = (
    CONTEXT
    + '''import os
from pathlib import Path

LIMIT = 3
class Reader(object):
    """Reads a file.

    Every line is given once.
    >>> Reader("x")
    """

    def read(self, path):
        assert path
        return path.read_text()'''
)


def last_lines(family: Family) -> list[str]:
    return [text.split("\n")[-1] for text in cuts(CODE, family)]


def test_a_cut_keeps_the_beginning_of_its_line_and_nothing_after_it() -> None:
    assert last_lines(Family.IMPORTS) == ["LIMIT =", "from", "import"]
    assert last_lines(Family.CLASSES) == ["    def", "class"]
    assert last_lines(Family.TESTS) == ["        assert", "    >>>"]
    assert last_lines(Family.DOCSTRINGS) == ["    Every"]
    assert last_lines(Family.BODIES) == ["        return path.read_text()"]


def test_every_cut_is_the_beginning_of_the_text() -> None:
    for family in Family:
        for text in cuts(CODE, family):
            assert CODE.startswith(text)


def test_a_body_does_not_stop_inside_a_string() -> None:
    assert not list(cuts(CODE[: CODE.index("Every")], Family.BODIES))


def test_a_line_without_enough_before_it_is_no_cut() -> None:
    assert not list(cuts(CODE.removeprefix(CONTEXT)[:30], Family.IMPORTS))


@pytest.mark.parametrize(
    ("lines", "inside"),
    [
        (["x = 1", "y = 2"], [False, False]),
        (["def f():", '    """', "    Text.", '    """'], [False, False, True, True]),
        (["    Text that began before.", '    """', "    return 1"], [True, True, False]),
        (["    More.", '    and the end."""', "    x = 1"], [True, True, False]),
        (["def f():", '    """One line."""', "    x = 1"], [False, False, False]),
        (["    x = '''a", "    b'''", "    y"], [False, True, False]),
    ],
)
def test_inside_strings(lines: list[str], inside: list[bool]) -> None:
    assert inside_strings(lines) == inside


def test_families_take_turns_and_rows_are_used_once_before_any_twice() -> None:
    other = CODE.replace("Reader", "Writer").replace("LIMIT", "BOUND").replace("import os", "")
    rows = [
        {"id": each, "module": each, "text": text} for each, text in (("a", CODE), ("b", other))
    ]
    prompts = select(rows, 2)
    assert [prompt.family for prompt in prompts[:5]] == list(CODE_FAMILIES)
    imports = [prompt for prompt in prompts if prompt.family is Family.IMPORTS]
    assert [prompt.source for prompt in imports] == ["a", "b"]


def test_the_held_out_prompts_fill_every_family() -> None:
    with open(model_path("models/embedded/heldout_prompts.jsonl"), encoding="utf-8") as lines:
        prompts = select([json.loads(line) for line in lines], 10)
    for family in CODE_FAMILIES:
        assert sum(prompt.family is family for prompt in prompts) >= 8
    # A newline and the indentation after it are one token.
    assert not any(prompt.text[-1].isspace() for prompt in prompts)
