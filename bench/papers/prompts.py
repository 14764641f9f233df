"""The prompts that a report is on: of other modules, tasks and chats than settings are tried on."""

from __future__ import annotations

from pathlib import Path

from bench.papers.experiments.families import Family, Prompt, in_turns, select
from foredraft.chat_template import read_chat_template
from foredraft_cli.prompts import held_out, human_eval
from foredraft_cli.prompts.sets import chat_prompts


def prompts_for(tokenizer_file: Path, per_family: int) -> list[Prompt]:
    """Return up to per_family prompts of each family, in turns.

    A base model continues held-out code; a chat model, which has a template, gets HumanEval's tasks
    and our chat prompts. Raise ConfigError where these are not installed.
    """
    template = read_chat_template(tokenizer_file.parent)
    if template is None:
        return select(held_out.rows(development=False), per_family)
    tasks = [(task.id, task.message) for task in human_eval.tasks() if task.half == "reporting"]
    chats = [(chat.id, chat.prompt) for chat in chat_prompts() if chat.half == "reporting"]
    found = [
        [
            Prompt(family, name, template.render([{"role": "user", "content": text}]), name)
            for name, text in held_out.spread(messages, per_family)
        ]
        for family, messages in ((Family.HUMAN_EVAL, tasks), (Family.CHAT, chats))
    ]
    return in_turns(found)
