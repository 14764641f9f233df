"""The simulated texts: which token stands where, so that each can be checked by its place.

The target's token at a position of any text is the position itself. Wrong tokens of drafts and
prompts are of other ranges; a prompt's first token names its request, so that no two texts begin
alike and share KV.
"""

from __future__ import annotations

from foredraft.types import ModelInfo

MAX_LEN = 1 << 20
_WRONG = 1 << 21
_PROMPTS = 1 << 22
MAX_REQUESTS = (1 << 24) - _PROMPTS

# float32 logits hold such tokens exactly.
INFO = ModelInfo(1 << 24, MAX_LEN, "", "exact", "simulated")


def right(position: int) -> int:
    """Return the target's token at a position."""
    return position


def generated(begin: int, end: int) -> list[int]:
    """Return the target's tokens at the positions from begin to before end."""
    return list(range(begin, end))


def wrong(node: int) -> int:
    """Return a token that the target never chooses, another one for each node of a draft."""
    return _WRONG + node


def prompt(request: int, tokens: int) -> tuple[int, ...]:
    """Return a request's prompt."""
    return (_PROMPTS + request, *(0,) * (tokens - 1))
