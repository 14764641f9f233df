"""Ways of decoding one prompt, and what came of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from bench.compare.rows import Run
from bench.papers.experiments.families import Prompt
from foredraft.types import SamplingParams

if TYPE_CHECKING:
    from bench.compare.peers import Transformers


class Promise(StrEnum):
    """What of plain decoding's output a way keeps above temperature 0."""

    TOKENS = "tokens"
    LAW = "law"
    NONE = "inexact"


class Spent(NamedTuple):
    """One round: tokens asked of the drafter, draft tokens verified (0: plain), tokens committed,
    seconds waited for the draft and then for the verdict.
    """

    asked: int
    drafted: int
    tokens: int
    waiting_s: float
    verifying_s: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """One prompt decoded.

    accepted[n] counts the rounds in which n draft tokens were kept, broken those in which one was
    refused; generated[n] counts the drafts with n tokens before the end of text, used or not.
    drafting_s and verifying_s are the services' own compute, in seconds; they overlap.
    rounds are empty where there are none, as with `transformers`.
    """

    run: Run
    accepted: Mapping[int, int] = field(default_factory=dict)
    broken: int = 0
    drafting_s: float = 0.0
    verifying_s: float = 0.0
    rounds: tuple[Spent, ...] = ()
    generated: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt decoded in one way, and plainly right before or a few ways before."""

    prompt: Prompt
    decoded: Decoded
    plain: Decoded


# A way's samples, in the prompts' order.
Column = list[Sample]
Decode = Callable[[tuple[int, ...], SamplingParams, int], Awaitable[Decoded]]


@dataclass(frozen=True, slots=True)
class Way:
    """A way of decoding: prompt, sampling and the most new tokens in, what came of it out."""

    name: str
    decode: Decode
    promise: Promise = Promise.TOKENS


def peer(name: str, peers: Transformers, lookup: bool = False, early_exit: int = 0) -> Way:
    """Return one of `transformers`' ways; it samples with noise of its own."""

    async def decode(prompt: tuple[int, ...], sampling: SamplingParams, max_tokens: int) -> Decoded:
        return Decoded(peers.run(prompt, sampling, max_tokens, lookup, early_exit))

    return Way(name, decode, Promise.LAW)
