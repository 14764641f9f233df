"""The named sets of prompts, as token ids of the target that continues them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from foredraft.chat_template import ChatTemplate, read_chat_template
from foredraft.errors import ConfigError
from foredraft_cli.prompts import held_out, human_eval

CHAT_FILE = Path(__file__).with_name("chat.jsonl")


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A set's name in the rows, and its prompts as token ids."""

    name: str
    prompts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """One of our own chat prompts, in one of MT-Bench's categories."""

    id: str
    category: str
    half: str
    prompt: str


def chat_prompts(file: Path = CHAT_FILE) -> list[ChatPrompt]:
    """Return the chat prompts of a file of JSON lines; raise ConfigError for another one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [ChatPrompt(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError):
        raise ConfigError(f"{file.name} holds no chat prompts", param="prompts") from None


def prompt_sets(
    tokenizer_file: Path, max_len: int, count: int, max_tokens: int, own: Path | None = None
) -> tuple[list[PromptSet], list[str]]:
    """Return the sets for a target, of at most count prompts each, and a line per set left out.

    A chat model gets the reporting halves of HumanEval and of our chat prompts in its own template,
    a base model held-out code. own is a file of texts to use instead. The target holds max_len
    tokens, of which max_tokens are for the answer. Raise ConfigError for a file that cannot be
    used.
    """
    tokenizer, folder = Tokenizer.from_file(str(tokenizer_file)), tokenizer_file.parent
    template = read_chat_template(folder)
    if own is not None or template is None:
        texts = held_out.prompts(count, own)
        ids = tuple(held_out.fitted(text, tokenizer, max_len, max_tokens) for text in texts)
        return [PromptSet("own" if own else "held_out", ids)], []
    messages = {"chat": [one.prompt for one in chat_prompts() if one.half == "reporting"]}
    left_out = []
    try:
        reporting = [task.message for task in human_eval.tasks() if task.half == "reporting"]
        messages = {"humaneval": reporting} | messages
    except ConfigError as error:
        left_out.append(f"humaneval is left out: {error}")
    return [
        PromptSet(
            name, tuple(chat_ids(one, tokenizer, template) for one in held_out.spread(texts, count))
        )
        for name, texts in messages.items()
    ], left_out


def chat_ids(message: str, tokenizer: Tokenizer, template: ChatTemplate | None) -> tuple[int, ...]:
    """Return one user message in the model's chat template, as token ids.

    The template writes special tokens as text, which the tokenizer reads as their ids; it adds
    none of its own, since the template has them all. A base model, without a template, gets the
    message as it is.
    """
    if template is None:
        return tuple(tokenizer.encode(message).ids)
    text = template.render([{"role": "user", "content": message}])
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)
