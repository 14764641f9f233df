"""What the ingress asks of the orchestrator and what it gets back. Records only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from foredraft.decoding.block_state import State
from foredraft.denoising import Unmasking
from foredraft.layout import Layout
from foredraft.types import (
    Committed,
    FinishReason,
    Grammar,
    LogitsParams,
    SamplingParams,
    Timings,
    TokenLogprobs,
)
from orchestrator.report import RoundStats, SpeculationReport

_UNCHANGED = LogitsParams()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request, validated: token ids in, at most max_new_tokens token ids out.

    session_id is unique among live sessions. Decoding ends after the first of stop_token_ids, which
    is the last token committed. speculate False decodes plainly. timeout_s bounds the whole request
    from its start, retries included; None sets no bound. logits is what is done to the target's
    logits (its prompt_len is set by the session); logprobs asks for those of every token, with so
    many of the likeliest ones beside it. The generated text follows grammar, if there is one.
    prompt_logprobs asks for those of the prompt's tokens, too. Only requests of one cache_salt
    share what their texts have in common. groups are whom its session counts for at a verifier;
    where that is full, it waits in the tenant's line if it may.
    With a layout, which any-subset targets read, the prompt is by position, and what is generated
    fills the text's holes from left to right. A diffusion target fills slots by unmasking, else as
    it was configured; block_states asks for the states of its blocks, too.
    """

    session_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    stop_token_ids: tuple[int, ...] = ()
    speculate: bool = True
    timeout_s: float | None = None
    logits: LogitsParams = _UNCHANGED
    logprobs: int | None = None
    grammar: Grammar | None = None
    prompt_logprobs: bool = False
    cache_salt: str = ""
    groups: tuple[str, ...] = ()
    tenant: str = ""
    may_wait: bool = True
    layout: Layout | None = None
    unmasking: Unmasking | None = None
    block_states: bool = False


class Drafted(NamedTuple):
    """A round's draft, a path where parents is empty: kept are the committed nodes, from the root
    on. The drafter took so long for it.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    timings: Timings = Timings()


NOTHING = Drafted()


@dataclass(frozen=True, slots=True)
class StepEvent:
    """The tokens that one round committed, at least one, and what the round cost.

    prompt_logprobs, if they were asked for, come with the first one: none for the first token. So
    does cached_tokens: how many of the prompt's had been read for another request. more is true
    where the next event follows at once, so that both can be sent together. drafted has no tokens
    in a plain round.
    """

    tokens: tuple[Committed, ...]
    stats: RoundStats
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
    more: bool = False
    drafted: Drafted = NOTHING


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """The block that a diffusion target is denoising, after all tokens that were sent before.

    state has MASKED for slots that are not filled; its first slot is the answer's token number
    `first`, below 0 where the prompt ends inside the block.
    """

    state: State
    first: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The last event of a request: why it ended and how speculation did."""

    finish: FinishReason
    report: SpeculationReport
