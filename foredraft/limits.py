"""Bounds that both sides of every wire check, before anything is allocated."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from foredraft.errors import InvalidRequest
from foredraft.types import Candidates, LogitsParams, SamplingParams

MAX_SESSION_ID = 128
MAX_PREFIX = 1 << 20
# Below it logits / temperature leave the numbers that floats hold.
MIN_TEMPERATURE = 1e-5
MAX_DRAFT = 256
# Outcomes of one round that drafts are made for before its verdict.
MAX_OUTCOMES = 64
# Texts that one stream drafts for.
MAX_TEXTS = 4096
MAX_PLAIN_STEPS = 64
# Slots of a block-diffusion model's block, states drafted for one call, and calls of one Advance.
MAX_BLOCK_LENGTH = 1024
MAX_STATES = 64
MAX_CALLS = 4096
MAX_CANDIDATES = 64
MAX_DENOISING_STEPS = 64
MAX_BIASES = 1024
MAX_LOGPROBS = 20
MAX_PROMPT_LOGPROBS = 1 << 18
MAX_GRAMMAR = 1 << 16
MAX_SALT = 256
# Whom a session counts for.
MAX_GROUPS = 4
MAX_GROUP = 64
MAX_EOS = 64
MAX_FEATURES_WIDTH = 1 << 16
# Of all features that a session may hold, in bytes.
MAX_FEATURES = 1 << 30
# Of a tensor's part in one message, of a reference to one, and of a store's name, in bytes.
MAX_TENSOR_CHUNK = 1 << 20
MAX_REFERENCE = 512
MAX_STORE = 64
MAX_MESSAGE_BYTES = 8 << 20
MAX_ADDRESS = 255
MAX_LED_ROUNDS = 256
MAX_DEADLINE_US = 60_000_000
MAX_PASS_S = 3600

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


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


def is_address(address: str) -> bool:
    """Return whether this is a host name, an IPv4 address or an IPv6 address in brackets, and a
    port: never a URL, whose scheme would choose what is dialled.
    """
    return len(address) <= MAX_ADDRESS and _ADDRESS.fullmatch(address) is not None


def check_session_id(session_id: str) -> None:
    """Raise InvalidRequest unless the id has 1 to 128 printable ASCII characters."""
    if not (
        0 < len(session_id) <= MAX_SESSION_ID and session_id.isascii() and session_id.isprintable()
    ):
        raise InvalidRequest(
            f"session_id must have 1 to {MAX_SESSION_ID} printable ASCII characters",
            param="session_id",
        )


def check_store(name: str) -> None:
    """Raise InvalidRequest unless the name of a tensor store is at most 64 printable characters."""
    if len(name) > MAX_STORE or not (name.isascii() and name.isprintable()):
        raise InvalidRequest(
            f"tensor_store must have at most {MAX_STORE} printable ASCII characters",
            param="tensor_store",
        )


def check_groups(groups: Sequence[str]) -> None:
    """Raise InvalidRequest unless there are at most 4, each 1 to 64 printable ASCII characters."""
    fit = all(0 < len(g) <= MAX_GROUP and g.isascii() and g.isprintable() for g in groups)
    if len(groups) > MAX_GROUPS or not fit:
        raise InvalidRequest(
            f"groups must be at most {MAX_GROUPS}, of 1 to {MAX_GROUP} printable ASCII characters",
            param="groups",
        )


def check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequest naming the first sampling field that is out of range."""
    check_range("temperature", sampling.temperature, 0, 100)
    if 0 < sampling.temperature < MIN_TEMPERATURE:
        raise InvalidRequest(
            f"temperature must be 0, or at least {MIN_TEMPERATURE:g}", param="temperature"
        )
    check_range("top_k", sampling.top_k, 0, vocab_size)
    check_range("top_p", sampling.top_p, 0, 1)
    if sampling.top_p == 0:
        raise InvalidRequest("top_p must be greater than 0", param="top_p")
    check_range("min_p", sampling.min_p, 0, 1)
    check_range("seed", sampling.seed, 0, (1 << 64) - 1)


def check_logits(logits: LogitsParams, vocab_size: int) -> None:
    """Raise InvalidRequest naming the first field of what is done to logits that is out of range.

    The bounds are those of the OpenAI API, where it has any.
    """
    check_range("prompt_len", logits.prompt_len, 0, MAX_PREFIX)
    check_range("repetition_penalty", logits.repetition_penalty, 0.01, 10)
    check_range("presence_penalty", logits.presence_penalty, -2, 2)
    check_range("frequency_penalty", logits.frequency_penalty, -2, 2)
    check_range("min_tokens", logits.min_tokens, 0, MAX_PREFIX)
    check_range("logit_bias entries", len(logits.logit_bias), 0, MAX_BIASES)
    tokens = [token for token, _ in logits.logit_bias]
    check_tokens("logit_bias", tokens, vocab_size)
    if len(set(tokens)) != len(tokens):
        raise InvalidRequest("logit_bias names a token twice", param="logit_bias")
    for _, bias in logits.logit_bias:
        check_range("logit_bias", bias, -100, 100)
    check_range("allowed_token_ids length", len(logits.allowed_token_ids), 0, vocab_size)
    check_tokens("allowed_token_ids", logits.allowed_token_ids, vocab_size)


def checked_expected(name: str, expected: Sequence[float], count: int) -> tuple[float, ...]:
    """Return probabilities; raise InvalidRequest naming the field unless none or each is given."""
    if len(expected) not in (0, count):
        raise InvalidRequest(f"{name} must be empty or as long as the tokens", param=name)
    for value in expected:
        check_range(name, value, 0, 1)
    return tuple(expected)


def check_candidates(name: str, q: Sequence[Candidates], tokens: Sequence[int]) -> None:
    """Raise InvalidRequest naming the field unless q is empty or has the law of each token."""
    if not q:
        return
    if len(q) != len(tokens):
        raise InvalidRequest(f"{name} must be empty or as long as the tokens", param=name)
    for token, (ids, weights) in zip(tokens, q, strict=True):
        check_range(f"{name} candidates", len(ids), 1, MAX_CANDIDATES)
        if len(ids) != len(weights) or len(set(ids)) != len(ids):
            raise InvalidRequest(f"{name} needs one weight for each of its tokens", param=name)
        check_range(f"{name} weights' sum", sum(weights), 1, (1 << 32) - 1)
        if token not in ids or weights[ids.index(token)] < 1 or min(weights) < 0:
            raise InvalidRequest(f"{name} gives a drafted token no weight", param=name)
