"""A target's own chat template: messages in, the text that it was trained on out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]
"""A `role` and its `content`, as in the OpenAI chat API."""


def has_template(folder: Path) -> bool:
    """Return whether the tokenizer's folder has a chat template."""
    config = folder / "tokenizer_config.json"
    try:
        named = json.loads(config.read_text()) if config.is_file() else {}
    except ValueError:
        raise ConfigError(f"tokenizer: {config.name} is no JSON", param="tokenizer") from None
    return (folder / "chat_template.jinja").is_file() or bool(named.get("chat_template"))


def render(messages: Sequence[Message], folder: Path) -> str:
    """Return the messages in the folder's chat template, up to where the answer starts.

    A tokenizer without a template belongs to a base model, which gets the contents as plain text.
    Raise ConfigError for a template that does not take the messages.
    """
    if not has_template(folder):
        return "\n\n".join(message["content"] for message in messages)
    try:
        text = _tokenizer(folder).apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:
        raise ConfigError(
            f"tokenizer: its chat template fails: {error}", param="tokenizer"
        ) from None
    return str(text)


def user(text: str) -> list[Message]:
    """Return a conversation of one message of the user's."""
    return [{"role": "user", "content": text}]


@lru_cache(maxsize=4)
def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    # Imported here: no other part of a quick bench needs it in this process.
    from transformers import AutoTokenizer

    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return found
