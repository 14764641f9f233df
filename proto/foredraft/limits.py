"""Bounds that both sides of every wire check, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from foredraft.errors import InvalidRequest
from foredraft.types import SamplingParams

MAX_SESSION_ID = 128
MAX_PREFIX = 1 << 20
MAX_DRAFT = 256
MAX_PLAIN_STEPS = 64
MAX_MESSAGE_BYTES = 8 << 20


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise InvalidRequest naming the field unless low <= value <= high; NaN is out of range."""
    if not (math.isfinite(value) and low <= value <= high):
        raise InvalidRequest(
            f"{name} must be between {low:g} and {high:g}, got {value}", param=name
        )


def check_tokens(name: str, tokens: Sequence[int], vocab_size: int) -> None:
    """Raise InvalidRequest naming the field unless every id is in [0, vocab_size)."""
    if tokens and (min(tokens) < 0 or max(tokens) >= vocab_size):
        bad = next(t for t in tokens if not 0 <= t < vocab_size)
        raise InvalidRequest(
            f"{name} has token id {bad}; ids are 0 to {vocab_size - 1}", param=name
        )


def check_session_id(session_id: str) -> None:
    """Raise InvalidRequest unless the id has 1 to 128 printable ASCII characters."""
    if not (
        0 < len(session_id) <= MAX_SESSION_ID and session_id.isascii() and session_id.isprintable()
    ):
        raise InvalidRequest(
            f"session_id must have 1 to {MAX_SESSION_ID} printable ASCII characters",
            param="session_id",
        )


def check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequest naming the first sampling field that is out of range."""
    check_range("temperature", sampling.temperature, 0, 100)
    check_range("top_k", sampling.top_k, 0, vocab_size)
    check_range("top_p", sampling.top_p, 0, 1)
    if sampling.top_p == 0:
        raise InvalidRequest("top_p must be greater than 0", param="top_p")
    check_range("min_p", sampling.min_p, 0, 1)
    check_range("seed", sampling.seed, 0, (1 << 64) - 1)
