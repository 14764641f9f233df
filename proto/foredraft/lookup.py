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
    last = tokens[-1] if tokens else None
    best, best_at = shortest - 1, 0
    for at in range(end - 1, max(0, end - window), -1):
        # tokens[:at] ends in a match of `size` tokens.
        if tokens[at - 1] != last:
            continue
        size = 1
        while size < longest and size < at and tokens[at - 1 - size] == tokens[end - 1 - size]:
            size += 1
        if size > best:
            best, best_at = size, at
            if size == longest:
                break
    return tuple(tokens[best_at : best_at + length]) if best_at else ()
