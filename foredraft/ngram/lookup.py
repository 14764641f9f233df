"""Prompt lookup: text that repeats itself is drafted by copying what followed the last time."""

from __future__ import annotations

from collections.abc import Sequence


def continuation(
    tokens: Sequence[int], length: int, shortest: int, longest: int = 8, window: int = 2048
) -> tuple[int, ...]:
    """Return up to length tokens that followed the longest earlier match of the text's end.

    A match has shortest to longest tokens and begins within the last window tokens; of equally long
    ones the latest counts. Empty if there is none.
    """
    end = len(tokens)
    best, best_at = shortest - 1, 0
    for at in reversed(_places(tokens, max(0, end - window), end - 1)):
        # tokens[:at] ends in a match of `size` tokens.
        size = 1
        while size < longest and size < at and tokens[at - 1 - size] == tokens[end - 1 - size]:
            size += 1
        if size > best:
            best, best_at = size, at
            if size == longest:
                break
    return tuple(tokens[best_at : best_at + length]) if best_at else ()


def _places(tokens: Sequence[int], start: int, end: int) -> list[int]:
    """Return where the last token occurred in tokens[start:end], as lengths of the text up to it.

    list.index, because a loop in Python over a long text would hold up the round.
    """
    found: list[int] = []
    at = start
    while at < end:
        try:
            at = tokens.index(tokens[-1], at, end) + 1
        except ValueError:
            break
        found.append(at)
    return found
