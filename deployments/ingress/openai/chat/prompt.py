"""A conversation as the text that the model is to continue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from deployments.ingress.openai.chat.messages import described
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.chat.tools import (
    BEFORE_ARGUMENTS,
    BEFORE_NAME,
    BETWEEN,
    CLOSING,
    OPENING,
    ToolUse,
)
from foredraft.chat_template import ChatTemplate
from foredraft.errors import InvalidRequest

# Stands behind the last message where that is to be continued; the prompt ends before it.
_CONTINUED = "[[the answer goes on here]]"
# The wording that Hermes and Qwen2.5 models were trained with.
_INSTRUCTIONS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def prompt_text(request: ChatRequest, template: ChatTemplate) -> str:
    """Return the conversation in the model's chat template; raise InvalidRequest naming a field."""
    use = request.tool_use()
    tools = _definitions(use)
    messages = described(request.messages)
    if not template.writes_tool_calls(OPENING):
        messages, tools = _with_instructions(messages, tools), []
    more = dict(request.chat_template_kwargs or {})
    if tools:
        more["tools"] = tools
    if not request.continue_final_message:
        begin = request.add_generation_prompt
        return template.render(messages, add_generation_prompt=begin, **more)
    messages[-1]["content"] += _CONTINUED
    text = template.render(messages, add_generation_prompt=False, **more)
    before, mark, _ = text.rpartition(_CONTINUED)
    if not mark:
        raise InvalidRequest(
            "the model's chat template leaves out the last message", param="continue_final_message"
        )
    return before


def _definitions(use: ToolUse | None) -> list[dict[str, Any]]:
    return [tool.model_dump(exclude_none=True) for tool in use.tools] if use else []


def _with_instructions(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages that tell of tools in plain text, for a template that knows none."""
    found = [_in_text(message) for message in messages]
    if not tools:
        return found
    written = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    instructions = _INSTRUCTIONS.format(tools=written)
    if found[0]["role"] == "system":
        first = found[0] | {"content": f"{found[0]['content']}\n\n{instructions}"}
        return [first, *found[1:]]
    return [{"role": "system", "content": instructions}, *found]


def _in_text(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        response = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": response}
    if "tool_calls" not in message:
        return message
    calls = [message["content"]] if message["content"] else []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = json.dumps(function["arguments"], ensure_ascii=False)
        head = OPENING + BEFORE_NAME + function["name"] + BEFORE_ARGUMENTS
        calls.append(head + arguments + CLOSING)
    return {"role": message["role"], "content": BETWEEN.join(calls)}
