"""Prompt lookup: text that repeats itself is drafted by copying what followed the last time."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.ngram.index import WINDOW, NgramIndex


def continuation(
    tokens: Sequence[int], length: int, shortest: int, longest: int = 8, window: int = WINDOW
) -> tuple[int, ...]:
    """Return up to length tokens that followed the longest earlier match of the text's end.

    A match has shortest to longest tokens and is followed within the last window tokens; of equally
    long ones the latest counts. Empty if there is none.
    """
    end = NgramIndex(tokens, longest, window).longest_match(shortest)
    return tuple(tokens[end : end + length]) if end else ()
