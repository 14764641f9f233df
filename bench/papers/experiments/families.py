"""Task families: held-out prompts cut where a line of one kind begins. Pure.

A text's family is the kind of line that it stops in. A function body is a held-out prompt as it is;
every other family keeps a prompt up to the first word of such a line, so that what follows is of
that kind, and no text ends in a newline or in indentation, which are one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """What a decoder is asked to write first."""

    BODIES = "function bodies"
    DOCSTRINGS = "docstrings"
    CLASSES = "classes"
    TESTS = "tests"
    IMPORTS = "imports and constants"
    HUMAN_EVAL = "HumanEval"
    CHAT = "chat"


CODE_FAMILIES = (Family.BODIES, Family.DOCSTRINGS, Family.CLASSES, Family.TESTS, Family.IMPORTS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, its family and the held-out prompt that it is cut from.

    Prompts of one module are alike: it is the unit of statistics.
    """

    family: Family
    source: str
    text: str
    module: str


# Characters, about 20 tokens: less is no context.
_SHORTEST = 60
_QUOTES = re.compile(r'"""|\'\'\'')
_OPENING = re.compile(r'[rRuUbBfF]{0,2}("""|\'\'\')|.*=\s*[rRuUbBfF]{0,2}("""|\'\'\')')
_DOCTEST = re.compile(r"\s*>>>")
_ASSERTION = re.compile(r"\s*(assert\b|self\.assert\w+)")
_PROSE = re.compile(r"\s*[A-Z][a-z]+(?= )")
_IMPORT = re.compile(r"\s*(import|from)\b(?= )")
_CONSTANT = re.compile(r"[A-Za-z_]\w* =(?= )")
_CLASS_LEVEL = re.compile(r"\s*class\b(?= \w)|\s+(async def|def)\b(?= \w+\((self|cls)\b)|\s+@")


def select(rows: Sequence[dict[str, str]], per_family: int) -> list[Prompt]:
    """Return up to per_family prompts of every family, from as many held-out prompts as there are.

    rows are {"id", "module", "text"}. A family's prompts are spread evenly over them; a row is used
    twice only where there are fewer rows than prompts asked for. The families take turns.
    """
    chosen = [_spread(_by_turns(rows, family), per_family) for family in CODE_FAMILIES]
    return in_turns(chosen)


def in_turns(families: Sequence[Sequence[Prompt]]) -> list[Prompt]:
    """Return the first prompt of every family, then the second of each, and so on."""
    longest = max(map(len, families))
    return [found[turn] for turn in range(longest) for found in families if turn < len(found)]


def cuts(text: str, family: Family) -> Iterator[str]:
    """Yield the text cut at each line of a family, longest first."""
    lines = text.split("\n")
    *quoted, ends_quoted = inside_strings([*lines, ""])
    if family is Family.BODIES:
        if not ends_quoted:
            yield text
        return
    for index in reversed(range(1, len(lines))):
        kept = _kept(lines[index], quoted[index], family)
        before = "\n".join(lines[:index])
        if kept and len(before) >= _SHORTEST:
            yield f"{before}\n{kept}"


def inside_strings(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it begins inside a triple-quoted string.

    A text may itself begin inside one: the first line with quotes shows it, by whether it can
    open a string.
    """
    state = False
    for index, line in enumerate(lines):
        if _toggles(line):
            state = not _opens(line, lines[:index])
            break
    found = []
    for line in lines:
        found.append(state)
        state ^= _toggles(line)
    return found


def _toggles(line: str) -> bool:
    return len(_QUOTES.findall(line)) % 2 == 1


def _opens(line: str, before: Sequence[str]) -> bool:
    """Return whether a line with quotes opens a string; bare quotes do after a header's colon."""
    last = next((each for each in reversed(before) if each.strip()), "")
    bare = _QUOTES.fullmatch(line.strip()) is not None
    return last.rstrip().endswith(":") if bare else _OPENING.match(line.strip()) is not None


def _kept(line: str, quoted: bool, family: Family) -> str | None:
    """Return the beginning of a line of this family, None if it is of another."""
    match family:
        case Family.TESTS:
            found = _DOCTEST.match(line) if quoted else _ASSERTION.match(line)
        case Family.DOCSTRINGS:
            found = _PROSE.match(line) if quoted and not _QUOTES.search(line) else None
        case Family.IMPORTS:
            found = None if quoted else _IMPORT.match(line) or _CONSTANT.match(line)
        case _:
            found = None if quoted else _CLASS_LEVEL.match(line)
    return found[0] if found else None


def _by_turns(rows: Sequence[dict[str, str]], family: Family) -> list[list[Prompt]]:
    """Return every row's first cut, then every row's second, and so on.

    Rows overlap where they come from one file: a cut whose last lines were seen before is left
    out.
    """
    seen: set[str] = set()
    turns: list[list[Prompt]] = []
    for row in rows:
        turn = 0
        for text in cuts(row["text"], family):
            if text[-_SHORTEST:] not in seen:
                seen.add(text[-_SHORTEST:])
                if turn == len(turns):
                    turns.append([])
                turns[turn].append(Prompt(family, row["id"], text, row["module"]))
                turn += 1
    return turns


def _spread(turns: Sequence[Sequence[Prompt]], count: int) -> list[Prompt]:
    """Return count prompts, of the first turn as far as that goes, evenly spaced."""
    chosen: list[Prompt] = []
    for found in turns:
        left = min(count - len(chosen), len(found))
        chosen += [found[i * len(found) // left] for i in range(left)]
    return chosen
