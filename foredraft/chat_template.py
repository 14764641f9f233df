"""A model's chat template: messages to the text that the model was trained to answer.

Templates are Jinja programs that come with a checkpoint; they run in Jinja's sandbox, without
access to anything but the messages and the tokenizer's special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from foredraft.errors import InvalidRequest, WeightsError

_SPECIALS = ("bos_token", "eos_token", "unk_token", "pad_token")
_TAGGED = "<function="


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template with the special tokens that it may name."""

    source: str
    specials: Mapping[str, str]

    def writes_tool_calls(self, opening: str) -> bool:
        """Whether the template has tools, and begins a call of one as JSON by this tag."""
        # Some models write the arguments of a call as tags, too.
        return "tools" in self.source and opening in self.source and _TAGGED not in self.source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **more: Any,
    ) -> str:
        """Return the text of messages, each with a role and its content.

        add_generation_prompt ends it where an answer begins; more goes to the template. Raise
        InvalidRequest naming messages where the template refuses them.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = _to_json
        try:
            return environment.from_string(self.source).render(
                {
                    **more,
                    **self.specials,
                    "messages": list(messages),
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except (TemplateError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise InvalidRequest(
                f"messages do not fit the model's chat template: {error}", param="messages"
            ) from None


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template of a tokenizer's folder, None for a model without one.

    Raise WeightsError for a tokenizer_config.json that is no JSON object.
    """
    path = folder / "tokenizer_config.json"
    try:
        config = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise WeightsError(f"{path.name} is no JSON object")
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else _default(config.get("chat_template"))
    if not source:
        return None
    specials = {name: text for name in _SPECIALS if (text := _text(config.get(name)))}
    return ChatTemplate(source, specials)


def _default(templates: Any) -> str | None:
    """Return the template of this name, where a model has several, else its only one."""
    if isinstance(templates, list):
        named = {each.get("name"): each.get("template") for each in templates}
        return named.get("default")
    return templates if isinstance(templates, str) else None


def _text(token: Any) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    # Not Jinja's own, which escapes HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)
