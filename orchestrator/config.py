"""The orchestrator's configuration: strict, frozen, validated once at the edge."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any

from pydantic import Field, model_validator

from foredraft.limits import (
    MAX_CALLS,
    MAX_DENOISING_STEPS,
    MAX_DRAFT,
    MAX_LED_ROUNDS,
    MAX_OUTCOMES,
    MAX_PLAIN_STEPS,
    MAX_PREFIX,
)
from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW
from foredraft.ngram.params import MIN_EXPECTED_TOKENS, MIN_NODE_PROB, NgramParams
from foredraft.strict import StrictModel
from foredraft.types import Acceptance, DraftParams, Proposal, SamplingParams, WarmupProposal
from orchestrator.breaker import Breaker
from orchestrator.length.config import (
    PLAIN_STEPS,
    AdlConfig,
    ByTemperatureConfig,
    DiffuSpecConfig,
)
from orchestrator.length.controllers import DraftLengthController


class BreakerConfig(StrictModel):
    """When to stop asking a drafter: failures in a row, then a pause that doubles up to a cap."""

    threshold: int = Field(default=3, ge=1, description="Failures in a row before a pause.")
    cooldown_s: float = Field(default=0.5, gt=0, description="First pause, in seconds.")
    max_cooldown_s: float = Field(
        default=4.0, gt=0, description="Longest pause, in seconds; each one doubles the last."
    )

    def breaker(self) -> Breaker:
        """Return a closed breaker."""
        return Breaker(self.threshold, self.cooldown_s, self.max_cooldown_s)


class RetryConfig(StrictModel):
    """How to come back after a peer is lost: pauses in seconds double from initial_s to max_s."""

    attempts: int = Field(
        default=8, ge=0, description="Replicas lost in a row, without a verdict between them."
    )
    wait_s: float = Field(
        default=300.0, ge=0, description="Longest wait for a replica that is there, in seconds."
    )
    initial_s: float = Field(default=0.05, gt=0, description="First pause, in seconds.")
    max_s: float = Field(
        default=2.0, gt=0, description="Longest pause, in seconds; each one doubles the last."
    )

    def pause_s(self, failures: int) -> float:
        """Return the pause after that many failures in a row; none before the first."""
        return min(self.initial_s * 2.0 ** min(failures - 1, 30), self.max_s) if failures else 0.0


class DenoisingConfig(StrictModel):
    """How a request is decoded by a block-diffusion target; times in seconds."""

    calls: int = Field(
        default=8,
        ge=1,
        le=MAX_CALLS,
        description="Calls of the model that one message asks for; text is streamed after them.",
    )
    retry: RetryConfig = Field(
        default=RetryConfig(), description="How to come back after a denoiser is lost."
    )
    admission_wait_s: float = Field(
        default=30.0,
        ge=0,
        description="Longest wait of a new session for room at a denoiser; then HTTP 429.",
    )
    open_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest wait for a denoiser that takes the session."
    )
    advance_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest wait for an answer before the denoiser is lost."
    )
    close_timeout_s: float = Field(
        default=1.0, gt=0, description="Longest wait for the session's end on the denoiser."
    )


class DraftConfig(StrictModel):
    """How a drafter works on a block, whatever the proposal (foredraft.types.DraftParams)."""

    steps: int = Field(
        default=1, ge=1, le=MAX_DENOISING_STEPS, description="Denoising passes of a draft."
    )
    extend: bool = Field(
        default=False, description="Whether drafts grow while their tokens are confident."
    )
    warmup_proposal: WarmupProposal = Field(
        default=WarmupProposal.DIFFUSION,
        description="What drafts the first tokens of a text, before diffusion (SpecDiff).",
    )
    warmup_tokens: int = Field(
        default=0, ge=0, le=MAX_PREFIX, description="Number of those first tokens."
    )

    @property
    def params(self) -> DraftParams:
        """These values as they travel."""
        return DraftParams(self.steps, self.extend, self.warmup_proposal, self.warmup_tokens)


class NgramConfig(StrictModel):
    """Drafts made of the text's own n-grams, before a drafter is asked (foredraft.ngram.tree)."""

    enabled: bool = Field(
        default=False, description="Whether n-grams draft before a drafter is asked."
    )
    min_expected_tokens: float = Field(
        default=MIN_EXPECTED_TOKENS,
        gt=0,
        le=MAX_DRAFT,
        description="Least expected number of accepted tokens for a draft from n-grams.",
    )
    depth: int = Field(
        default=DEPTH, ge=1, le=MAX_DRAFT, description="Longest branch of the tree, in tokens."
    )
    window: int = Field(
        default=WINDOW,
        ge=1,
        le=MAX_PREFIX,
        description="Last tokens of the session whose n-grams are counted.",
    )
    pseudocounts: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...] = Field(
        default=PSEUDOCOUNTS,
        min_length=1,
        max_length=8,
        description="Weight of an unseen token after the last 1, 2, ... tokens, in occurrences.",
    )
    min_node_prob: float = Field(
        default=MIN_NODE_PROB, ge=1e-6, le=1, description="Least probability of a node."
    )

    @property
    def params(self) -> NgramParams | None:
        """These values as they are used, None if they are not."""
        if not self.enabled:
            return None
        values = (self.min_expected_tokens, self.depth, self.window, self.pseudocounts)
        return NgramParams(*values, self.min_node_prob)


class OrchestratorConfig(StrictModel):
    """How sessions are driven."""

    adl: AdlConfig = Field(default=DiffuSpecConfig(), description="Controller of the draft length.")
    proposal: Proposal = Field(
        default=Proposal.COUPLED,
        description="How drafts are made; coupled is argmax at temperature 0.",
    )
    draft: DraftConfig = Field(
        default=DraftConfig(), description="How drafters work, whatever the proposal."
    )
    ngram: NgramConfig = Field(
        default=NgramConfig(), description="Drafts from n-grams of the session's own tokens."
    )
    self_draft: int = Field(
        default=32,
        ge=0,
        le=MAX_DRAFT,
        description="Tokens of a pass that an any-subset target drafts itself, in place of a "
        "drafter; 0: none.",
    )
    acceptance: Acceptance = Field(
        default=Acceptance.COUPLED,
        description="Acceptance rule; only coupled gives the tokens of plain decoding.",
    )
    draft_deadline_ms: float = Field(
        default=50.0,
        gt=0,
        description="Longest wait of a round for its draft before it continues plainly, in "
        "milliseconds.",
    )
    plain_steps: int = Field(
        default=PLAIN_STEPS,
        ge=1,
        le=MAX_PLAIN_STEPS,
        description="Passes of a round for which no draft is requested; fewer make the stream "
        "smoother.",
    )
    fallback_steps: int = Field(
        default=4,
        ge=1,
        le=MAX_PLAIN_STEPS,
        description="Passes of a plain round while a draft is late or the drafter is lost.",
    )
    breaker: BreakerConfig = Field(
        default=BreakerConfig(), description="When to pause requests to a failing drafter."
    )
    verifier_retry: RetryConfig = Field(
        default=RetryConfig(), description="How to continue after a verifier is lost."
    )
    admission_wait_s: float = Field(
        default=30.0,
        ge=0,
        description="Longest wait of a new session for room at a verifier, in seconds; then HTTP "
        "429. 0: none waits.",
    )
    drafter_timeout_s: float = Field(
        default=1.0,
        gt=0,
        description="Longest wait for a late draft before the drafter counts as lost, in seconds.",
    )
    open_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest wait for a stream to open, in seconds."
    )
    verify_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest wait for a verdict, in seconds."
    )
    close_timeout_s: float = Field(
        default=2.0, gt=0, description="Longest wait for both streams to close, in seconds."
    )
    run_ahead_min_hit_rate: float = Field(
        default=0.15,
        ge=0,
        le=1,
        description="Least share of correctly predicted outcomes at which the next draft is "
        "requested before the verdict.",
    )
    run_ahead_outcomes: int = Field(
        default=8,
        ge=1,
        le=MAX_OUTCOMES,
        description="Most predicted outcomes of a round that drafts are requested for before its "
        "verdict.",
    )
    verifier_led_rounds: int = Field(
        default=0,
        ge=0,
        le=MAX_LED_ROUNDS,
        description="Rounds of the lease in which a verifier requests drafts itself, or decodes "
        "plainly; 0: the orchestrator requests every draft, and every plain round.",
    )
    request_timeout_s: float = Field(
        default=3600.0,
        gt=0,
        description="Longest time from a request's start to its last token, in seconds.",
    )
    unread_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Longest that a session waits for a reader who takes nothing, in seconds.",
    )
    keepalive_s: float = Field(
        default=15.0,
        gt=0,
        description="A stream without news for so many seconds sends a comment, so that nothing on "
        "its way takes it for dead.",
    )
    read_ahead: int = Field(
        default=4,
        ge=1,
        description="Committed rounds that may wait for a slow reader before decoding pauses.",
    )
    stream_interval_ms: float = Field(
        default=50.0,
        ge=0,
        le=1000,
        description="A stream sends at most one event in so many milliseconds, with all that was "
        "committed since the last; 0 sends one for every round.",
    )

    def controller(self, sampling: SamplingParams) -> DraftLengthController[Any]:
        """Return the controller of a request that samples so."""
        adl = self.adl
        if isinstance(adl, ByTemperatureConfig):
            adl = adl.sampled if sampling.temperature > 0 else adl.greedy
        return adl.controller()

    def kind(self, sampling: SamplingParams) -> Hashable:
        """Return what requests share that draft alike, and so a controller's state."""
        greedy = sampling.temperature == 0
        return greedy, self.proposal, self.draft, self.ngram, self.adl, self.verifier_led_rounds

    def why_unverifiable(self) -> str | None:
        """Return why the acceptance rule cannot verify these drafts, None if it can."""
        if self.acceptance is Acceptance.COUPLED:
            return None
        if self.proposal is Proposal.TREE:
            return f"acceptance {self.acceptance} cannot verify the trees of proposal tree"
        if self.ngram.enabled:
            return f"acceptance {self.acceptance} cannot verify the trees of ngram"
        return None

    @model_validator(mode="after")
    def _verifiable(self) -> OrchestratorConfig:
        if (fault := self.why_unverifiable()) is not None:
            raise ValueError(fault)
        return self
