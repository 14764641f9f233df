"""What the documents tell a reader to type: their fenced blocks and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "models/**/*.md", "*/README.md")
    for path in ROOT.glob(pattern)
    # What a version had is told there, whether it is still so or not.
    if path.name != "CHANGELOG.md"
)
# Run for real in the app ring.
AT_THE_CLUSTER = ("curl",)
SHELLS = ("sh", "bash", "console")
_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`((?:make|foredraft|python -m|\.venv/bin/python) [^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block, with the language that its page gives it."""

    page: Path
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command's words, without comments, redirections to other commands, or an ampersand."""

    page: Path
    words: tuple[str, ...]
    whole: bool = True
    """Whether it can be typed so; a name in the prose may lack arguments."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {shlex.join(self.words)}"


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all pages, of all languages or of these."""
    found = (
        Block(page, match[1], match[2])
        for page in PAGES
        for match in _FENCED.finditer(page.read_text())
    )
    return [block for block in found if not languages or block.language in languages]


def commands() -> list[Command]:
    """Return the commands of all shell blocks, and those between backquotes in the prose."""
    found = [
        Command(block.page, words)
        for block in blocks(*SHELLS)
        for line in _lines(block)
        for words in _words(line)
    ]
    for page in PAGES:
        prose = _FENCED.sub("", page.read_text())
        for span in _SPAN.findall(prose):
            # What may be left out is part of the command, too.
            found += [Command(page, words, False) for words in _words(re.sub(r"[\[\]]", "", span))]
    return list(dict.fromkeys(found))


def _lines(block: Block) -> Iterator[str]:
    """The commands of a shell block; those of a console stand behind a dollar sign."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language != "console":
            yield line
        elif line.startswith("$ "):
            yield line.removeprefix("$ ")


def _words(line: str) -> Iterator[tuple[str, ...]]:
    """Each command of a line: what `&&`, `;` or `&` ends."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("&;|"):
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word)
    if words:
        yield tuple(words)
