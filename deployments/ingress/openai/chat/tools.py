"""The tools that an answer may call: their definitions, the choice, and the grammar of calls.

A call is written as Hermes, Qwen2.5 and Qwen3 models do:

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>

The grammar allows nothing else behind the opening tag, so a whole call always follows its schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from deployments.ingress.openai.fields import check_grammar
from foredraft.errors import InvalidRequest
from foredraft.types import Grammar, GrammarKind

MAX_TOOLS = 128
OPENING = "<tool_call>"
# What stands between the parts of a call.
BEFORE_NAME = '\n{"name": "'
BEFORE_ARGUMENTS = '", "arguments": '
CLOSING = "}\n</tool_call>"
BETWEEN = "\n"

# A model that may write any white space is easily lost in it.
_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class FunctionDefinition(BaseModel):
    """A function that can be called; parameters is the JSON schema of its arguments.

    Calls follow the schema whether strict is true or not.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


class Tool(BaseModel):
    """A tool: a function."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(BaseModel):
    """A function by its name."""

    name: str = Field(max_length=64)


class NamedTool(BaseModel):
    """The choice of one tool."""

    type: Literal["function"]
    function: FunctionName


class ToolUse(NamedTuple):
    """The functions that an answer may call; must it, and may it call several times?"""

    tools: tuple[Tool, ...]
    must: bool
    several: bool


def tool_use(
    tools: Sequence[Tool] | None,
    choice: Literal["none", "auto", "required"] | NamedTool | None,
    several: bool,
) -> ToolUse | None:
    """Return what the answer may call, None if nothing; raise InvalidRequest naming a field."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise InvalidRequest("tool_choice needs tools", param="tool_choice")
        return None
    names = [tool.function.name for tool in tools]
    for at, tool in enumerate(tools):
        if tool.function.name in names[:at]:
            field = f"tools.{at}.function.name"
            raise InvalidRequest(f"{field} is that of an earlier tool", param=field)
        if (tool.function.parameters or {}).get("type", "object") != "object":
            field = f"tools.{at}.function.parameters"
            raise InvalidRequest(f"{field}: its type must be object", param=field)
    if choice == "none":
        return None
    if isinstance(choice, NamedTool):
        if choice.function.name not in names:
            raise InvalidRequest(
                f"tool_choice: there is no tool {choice.function.name!r}",
                param="tool_choice.function.name",
            )
        return ToolUse((tools[names.index(choice.function.name)],), must=True, several=False)
    return ToolUse(tuple(tools), must=choice == "required", several=several)


def grammar(use: ToolUse) -> Grammar:
    """Return the grammar of an answer: text before the calls only where it need not call.

    Raise InvalidRequest naming tools where it is too long.
    """
    call = f"{_quoted(OPENING)} call"
    rules = ["%llguidance {}"]
    more = f"({_quoted(BETWEEN)} {call})*" if use.several else ""
    if use.must:
        rules.append(f"start: {call} {more}")
    else:
        # A lazy lexeme ends where the tag does, so that free text never has one.
        rules += [
            f"start: opened call {more} | TEXT",
            f"opened[lazy]: TEXT {_quoted(OPENING)}",
            r"TEXT: /(.|\n)*/",
        ]
    functions = [f"function_{at}" for at in range(len(use.tools))]
    rules.append(f"call: ({' | '.join(functions)}) {_quoted(CLOSING)}")
    for name, tool in zip(functions, use.tools, strict=True):
        function = tool.function
        schema = {
            **(function.parameters or _NO_PARAMETERS),
            "type": "object",
            "x-guidance": _WRITTEN,
        }
        head = BEFORE_NAME + function.name + BEFORE_ARGUMENTS
        rules.append(f"{name}: {_quoted(head)} %json {json.dumps(schema)}")
    found = Grammar(GrammarKind.LARK, "\n".join(rules))
    check_grammar("tools", found)
    return found


def _quoted(text: str) -> str:
    # Lark's strings are quoted as JSON's are.
    return json.dumps(text)
