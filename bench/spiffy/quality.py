"""Whether denoised text is still Python."""

from __future__ import annotations

import codeop
import textwrap
import warnings
from typing import NamedTuple


class Parsed(NamedTuple):
    """Of so many texts whose prompt is Python, or the beginning of it, so many stayed that."""

    texts: int = 0
    still: int = 0

    def and_then(self, prompt: str, answer: str) -> Parsed:
        """Return the counts with one more text."""
        if not _begins(prompt):
            return self
        return Parsed(self.texts + 1, self.still + _begins(prompt + answer))


def _begins(code: str) -> bool:
    """Whether whole lines, of any indentation, are Python that may be unfinished."""
    lines = textwrap.dedent(code[: code.rfind("\n") + 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            codeop.compile_command(lines, symbol="exec")
        except (SyntaxError, ValueError, OverflowError):
            return False
    return True
