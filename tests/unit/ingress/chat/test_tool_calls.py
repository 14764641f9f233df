"""Tool calls: what the grammar of an answer allows is what is read from it, however it comes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from deployments.config import model_path
from deployments.ingress.openai.chat.tool_calls import Called, ToolCallText
from deployments.ingress.openai.chat.tools import (
    FunctionDefinition,
    NamedTool,
    Tool,
    grammar,
    tool_use,
)
from foredraft.errors import InvalidRequest

FILE = model_path("models/embedded/tokenizer/tokenizer.json")
TOKENIZER = LLTokenizer(FILE)
WEATHER = Tool(
    type="function",
    function=FunctionDefinition(
        name="weather",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
)
NOW = Tool(type="function", function=FunctionDefinition(name="now"))
OSLO = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def follows(text: str, choice: Any = None, several: bool = True) -> bool:
    """Whether an answer that may end here can be this text."""
    use = tool_use([WEATHER, NOW], choice, several)
    assert use is not None
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(grammar(use).text), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = TOKENIZER.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("text", "auto", "required"),
    [
        ("It is sunny.\n", True, False),
        ("", True, False),
        (OSLO, True, True),
        (f"Let me see.\n{OSLO}", True, False),
        (f"{OSLO}\n{TIME}", True, True),
        (f"{OSLO}{TIME}", False, False),
        (f"{OSLO} and so", False, False),
        (OSLO.replace("Oslo", 'a "b" {c} \\\\'.replace('"', '\\"')), True, True),
        (OSLO.replace("weather", "whether"), False, False),
        (OSLO.replace(': "Oslo"', ": 3"), False, False),
        (OSLO.replace('"city"', '"town"'), False, False),
        (OSLO.replace(', "days"', ',  "days"'), False, False),
        (TIME.replace("{}", '{"zone": 1}'), False, False),
        ("<tool_call>weather</tool_call>", False, False),
        ("a <tool_cal of b", True, False),
        (OSLO[:-3], False, False),
    ],
)
def test_an_answer_is_text_or_calls_that_follow_their_schema(
    text: str, auto: bool, required: bool
) -> None:
    assert follows(text) == auto
    assert follows(text, "required") == required


def test_one_call_alone_where_several_are_not_wanted() -> None:
    assert follows(OSLO, several=False) and follows(OSLO, "required", several=False)
    assert follows(f"so: {OSLO}", several=False)
    assert not follows(f"{OSLO}\n{TIME}", several=False)


def test_a_named_tool_is_the_only_one() -> None:
    named = NamedTool.model_validate({"type": "function", "function": {"name": "now"}})
    assert follows(TIME, named)
    assert not follows(OSLO, named) and not follows("no", named)


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        (None, "required", "tool_choice"),
        ([WEATHER, WEATHER], "auto", "tools.1.function.name"),
        (
            [WEATHER],
            NamedTool.model_validate({"type": "function", "function": {"name": "f"}}),
            "tool_choice.function.name",
        ),
        (
            [
                Tool(
                    type="function",
                    function=FunctionDefinition(name="f", parameters={"type": "array"}),
                )
            ],
            "auto",
            "tools.0.function.parameters",
        ),
    ],
)
def test_what_cannot_be_called_is_named(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        tool_use(tools, choice, True)
    assert refused.value.param == param


def test_without_a_choice_to_call_there_is_no_use() -> None:
    assert tool_use(None, None, True) is None
    assert tool_use([], "auto", True) is None
    assert tool_use([WEATHER], "none", True) is None


def read(parts: list[str]) -> tuple[str, list[tuple[str, str]], bool]:
    """Return content and calls of a text that comes in parts, as clients join them."""
    reading = ToolCallText()
    found = [reading.feed(part) for part in parts] + [reading.finish()]
    calls: list[tuple[str, str]] = []
    for each in found:
        assert len({call["index"] for call in each.calls}) == len(each.calls)
        for call in each.calls:
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append((call["function"]["name"], ""))
            name, arguments = calls[call["index"]]
            calls[call["index"]] = (name, arguments + call["function"]["arguments"])
    return "".join(each.content for each in found), calls, reading.called


JSON = st.dictionaries(
    st.text(max_size=4), st.recursive(st.integers() | st.text(max_size=6), st.lists), max_size=3
)


@given(
    content=st.text(max_size=12).filter(lambda text: "<tool_call>" not in text),
    calls=st.lists(st.tuples(st.sampled_from(["a", "get_b"]), JSON), max_size=3),
    data=st.data(),
)
def test_a_text_is_read_alike_however_it_is_cut(
    content: str, calls: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    written = [(name, json.dumps(arguments)) for name, arguments in calls]
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        for name, arguments in written
    ]
    text = content + "\n".join(blocks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    parts = [text[a:b] for a, b in pairwise(edges)]
    assert read(parts) == (content, written, bool(calls))


def test_content_is_released_as_soon_as_it_cannot_be_a_tag() -> None:
    reading = ToolCallText()
    assert reading.feed("so <tool_") == Called("so ")
    assert reading.feed("box>") == Called("<tool_box>")
    assert reading.feed(" <tool") == Called(" ")
    assert reading.finish() == Called("<tool")


def test_a_call_that_was_cut_off_is_no_whole_one() -> None:
    content, calls, called = read([f"a{OSLO[:-15]}"])
    assert (content, called) == ("a", False)
    assert calls == [("weather", '{"city": "Oslo", "days": 2')]
