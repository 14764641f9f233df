"""Conversations as prompts: the model's template, its tools, and instructions where it has none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.ingress.openai.chat.prompt import prompt_text
from deployments.ingress.openai.chat.request import ChatRequest
from foredraft.chat_template import ChatTemplate
from foredraft.errors import InvalidRequest

CHATML = ChatTemplate(
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    {},
)
HERMES = ChatTemplate(
    "{% if tools %}[{% for t in tools %}{{ t | tojson }}{% endfor %}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}{% endfor %}"
    "</>{% endfor %}{% if enable_thinking is false %}<think></think>{% endif %}",
    {},
)
FUNCTION = {"name": "now", "description": "The time"}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "ä"}'}}


def asked(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": list(messages), **fields})


USER = {"role": "user", "content": "What time is it?"}


def test_messages_of_several_parts_and_a_developer() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = asked({"role": "developer", "content": "brief"}, {"role": "user", "content": parts})
    text = prompt_text(request, CHATML)
    assert text == "<system>brief</>\n<user>a\nb</>\n<assistant>"


def test_the_last_message_is_gone_on_with() -> None:
    begun = {"role": "assistant", "content": "It is "}
    text = prompt_text(asked(USER, begun, continue_final_message=True), CHATML)
    assert text == "<user>What time is it?</>\n<assistant>It is "


def test_a_template_that_knows_tools_is_given_them() -> None:
    answered = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "content": "12:00", "tool_call_id": "c1"}
    request = asked(
        USER, answered, result, tools=[TOOL], chat_template_kwargs={"enable_thinking": False}
    )
    text = prompt_text(request, HERMES)
    assert text == (
        f"[{json.dumps(TOOL)}]<user>What time is it?</>"
        '<assistant><tool_call>{"zone": "ä"}</><tool>12:00</><think></think>'
    )


def test_another_template_gets_instructions() -> None:
    answered = {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}
    result = {"role": "tool", "content": "12:00", "tool_call_id": "c1"}
    text = prompt_text(asked(USER, answered, result, tools=[TOOL]), CHATML)
    assert text.startswith("<system># Tools\n")
    assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in text
    call = '<tool_call>\n{"name": "now", "arguments": {"zone": "ä"}}\n</tool_call>'
    assert f"<assistant>{call}\n{call}</>" in text
    assert "<user><tool_response>\n12:00\n</tool_response></>" in text
    system = {"role": "system", "content": "brief"}
    assert prompt_text(asked(system, USER, tools=[TOOL]), CHATML).startswith(
        "<system>brief\n\n# Tools\n"
    )


def test_tools_that_may_not_be_called_are_not_told_of() -> None:
    assert "now" not in prompt_text(asked(USER, tools=[TOOL], tool_choice="none"), HERMES)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "messages.0.content.0",
        ),
        ({"role": "user"}, "messages.0.content"),
        ({"role": "user", "content": "a", "audio": {"id": 1}}, "messages.0.audio"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "messages.0.tool_calls"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
            "messages.0.tool_calls.0.function.arguments",
        ),
    ],
)
def test_what_is_not_served_is_named(message: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        prompt_text(asked(message), CHATML)
    assert refused.value.param == param


def test_an_answer_is_taken_back_as_it_was_given() -> None:
    given: dict[str, Any] = {
        "role": "assistant",
        "content": "4",
        "refusal": None,
        "annotations": [],
        "audio": None,
    }
    assert "<assistant>4</>" in prompt_text(asked(USER, given, USER), CHATML)
