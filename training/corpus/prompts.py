"""The fixed held-out prompts: text that ends inside a function body, with the lines before it as
context.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from training.corpus.corpus import Document, held_out_files

PER_MODULE = 12
CONTEXT_TOKENS = 128
_HEADER_END = re.compile(r"^[ \t]*(?:async )?def \w+\(.*\).*:$")


def cut_points(lines: list[str]) -> Iterator[int]:
    """Numbers of lines to keep so that a text ends after a one-line function header and two lines
    of its body.
    """
    for index, line in enumerate(lines[:-4]):
        if _HEADER_END.match(line) and all(lines[index + 1 : index + 3]):
            yield index + 3


def document_prompts(document: Document, tokenizer: Tokenizer) -> list[str]:
    """Every prompt of a document: whole lines, at least CONTEXT_TOKENS tokens, at most about a line
    more.
    """
    lines = document.text.split("\n")
    found: list[str] = []
    for cut in cut_points(lines):
        start = cut
        while start > 0 and len(tokenizer.encode(_text(lines, start, cut)).ids) < CONTEXT_TOKENS:
            start -= 1
        count = len(tokenizer.encode(_text(lines, start, cut)).ids)
        if CONTEXT_TOKENS <= count <= 2 * CONTEXT_TOKENS:
            found.append(_text(lines, start, cut))
    return found


def _text(lines: list[str], start: int, cut: int) -> str:
    """Lines without a final newline: it is one token with the indentation that follows it."""
    return "\n".join(lines[start:cut])


def held_out_prompts(tokenizer: Tokenizer, seed: int) -> list[dict[str, str]]:
    """Up to PER_MODULE prompts of every held-out module (tests left out), as {"id", "module",
    "text"}.
    """
    by_module: dict[str, list[str]] = {}
    for document in held_out_files():
        if document.core:
            by_module.setdefault(document.name, []).extend(document_prompts(document, tokenizer))
    prompts: list[dict[str, str]] = []
    for module, texts in sorted(by_module.items()):
        chosen = random.Random(f"{seed}:{module}").sample(texts, min(PER_MODULE, len(texts)))
        prompts += [
            {"id": f"{module}-{i:02d}", "module": module, "text": text}
            for i, text in enumerate(chosen)
        ]
    return prompts


def write_prompts(path: Path, prompts: list[dict[str, str]]) -> None:
    """Writes prompts as JSON lines."""
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def read_prompts(path: Path) -> list[dict[str, str]]:
    """Reads what `write_prompts` wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()]
