"""What the answers of both APIs have: tokens counted, speculation reported, rounds traced."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Answered(BaseModel):
    """No answer has a field that is not described."""

    model_config = ConfigDict(extra="forbid")


class PromptTokensDetails(Answered):
    """Prompt tokens that had been read for an earlier request."""

    cached_tokens: int


class Usage(Answered):
    """Tokens read, and tokens emitted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class RoundPrice(Answered):
    """What a verifier's passes cost in seconds, and how many sessions share them."""

    sessions: int
    pass_s: float
    row_s: float
    draft_s: float
    drafting: int


class TracedRound(Answered):
    """One round: why k, what was offered and bought of it, at which price; what it committed."""

    k: int
    reason: str
    offered: int
    bought: int
    accepted: int
    price: RoundPrice
    tokens: int
    passes: int


class Speculation(Answered):
    """How one choice was decoded; times in seconds."""

    acceptance: str
    proposal: str | None
    ngram: bool
    self_draft: int
    num_rounds: int
    num_target_passes: int
    num_spec_steps: int
    num_ngram_steps: int
    num_draft_tokens: int
    num_bought_tokens: int
    num_accepted_draft_tokens: int
    mean_acceptance_length: float
    draft_acceptance_rate: float
    mean_draft_length: float
    acceptance_histogram: list[int]
    origins: dict[str, int]
    run_ahead_rounds: int
    run_ahead_hits: int
    run_ahead_hit_rate: float
    verifier_moves: int
    drafter_attaches: int
    drafter_refusal: str | None
    drafting_s: float
    verifying_s: float
    computing_s: float
    waiting_s: float
    trace: list[TracedRound] | None = None


class Metrics(Answered):
    """One report of speculation, or one for each choice where there are several."""

    speculative_decoding: Speculation | list[Speculation | None] | None


class RoundToken(Answered):
    """A token that a round committed."""

    id: int
    text: str
    origin: str


class RoundDraft(Answered):
    """A round's draft as a tree: parents[i] is the row before row i, -1 at the root."""

    tokens: list[int]
    texts: list[str]
    parents: list[int]
    kept: list[int]


class Round(Answered):
    """One round of a choice (`speculative.rounds`); times in seconds."""

    round: int
    tokens: list[RoundToken]
    draft: RoundDraft
    bought: int
    source: Literal["none", "ngram", "drafter"]
    k: int
    reason: str
    led_by: Literal["verifier", "orchestrator"]
    ahead: Literal["hit", "miss", "no"]
    price: RoundPrice
    began_s: float
    draft_wait_s: float
    verify_s: float
    verifier_queue_s: float
    verifier_s: float
    drafter_s: float


class Block(Answered):
    """The block that a diffusion target is denoising, null for slots that are not filled.

    Its first slot is the choice's token number `first`, below 0 where the prompt ends inside it.
    """

    first: int
    token_ids: list[int | None]
    texts: list[str | None]


class Choice(Answered):
    """What choices of both APIs have; the last four only where they were asked for."""

    index: int
    finish_reason: str | None
    token_ids: list[int] | None = None
    origins: list[str] | None = None
    block: Block | None = None
    rounds: list[Round] | None = None
