"""The orchestrator's configuration: strict, frozen, validated once at the edge."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from foredraft.limits import (
    MAX_DENOISING_STEPS,
    MAX_DRAFT,
    MAX_LED_ROUNDS,
    MAX_PLAIN_STEPS,
    MAX_PREFIX,
)
from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW
from foredraft.ngram.tree import MIN_EXPECTED_TOKENS, MIN_NODE_PROB, NgramParams
from foredraft.strict import StrictModel
from foredraft.types import Acceptance, DraftParams, FirstTokens, Proposal, SamplingParams
from orchestrator.breaker import Breaker
from orchestrator.length.controllers import (
    PLAIN,
    AcceptanceController,
    DiffuSpecController,
    DraftLengthController,
    FixedController,
)
from orchestrator.length.goodput import GoodputController

# Tokens per plain round when nothing is drafted, unless configured otherwise.
PLAIN_STEPS = 8


class DiffuSpecConfig(StrictModel):
    """DiffuSpec's controller, Eq. 8-10: lengths in tokens, rho the weight of the newest block."""

    name: Literal["diffuspec"] = "diffuspec"
    k_min: int = Field(default=4, ge=1, le=MAX_DRAFT)
    k_max: int = Field(default=16, ge=1, le=MAX_DRAFT)
    rho: float = Field(default=0.5, gt=0, le=1)
    delta: float = Field(default=4.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> DiffuSpecConfig:
        if self.k_min > self.k_max:
            raise ValueError("k_min must not be larger than k_max")
        return self

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return DiffuSpecController(self.k_min, self.k_max, self.rho, self.delta)


class AcceptanceConfig(StrictModel):
    """Follow the accepted length alone: its average plus delta, in tokens."""

    name: Literal["acceptance"] = "acceptance"
    k_min: int = Field(default=2, ge=1, le=MAX_DRAFT)
    k_max: int = Field(default=15, ge=1, le=MAX_DRAFT)
    k_start: int = Field(default=8, ge=1, le=MAX_DRAFT)
    rho: float = Field(default=0.3, gt=0, le=1)
    delta: float = Field(default=3.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> AcceptanceConfig:
        if not self.k_min <= self.k_start <= self.k_max:
            raise ValueError("k_start must be between k_min and k_max")
        return self

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return AcceptanceController(self.k_min, self.k_max, self.k_start, self.rho, self.delta)


class FixedConfig(StrictModel):
    """Always k tokens."""

    name: Literal["fixed"] = "fixed"
    k: int = Field(default=8, ge=1, le=MAX_DRAFT)

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return FixedController(self.k)


class GoodputConfig(StrictModel):
    """The most committed tokens per second, by measured acceptance and costs (goodput.py)."""

    name: Literal["goodput"] = "goodput"
    # The lengths to choose from; 0 is plain decoding.
    lengths: tuple[Annotated[int, Field(ge=0, le=MAX_DRAFT)], ...] = (0, 4, 6, 8, 11, 15)
    # Acceptance of a token after accepted ones, before any was tried.
    prior: float = Field(default=0.8, gt=0, lt=1)
    probe_rounds: int = Field(default=8, ge=1)
    probe_tokens: int = Field(default=96, ge=1)
    # By what factor plain decoding must win.
    margin: float = Field(default=1.2, ge=1)

    @model_validator(mode="after")
    def _drafts(self) -> GoodputConfig:
        if max(self.lengths, default=0) == 0:
            raise ValueError("lengths must hold one above 0")
        return self

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return GoodputController(
            tuple(sorted(set(self.lengths))),
            self.prior,
            PLAIN_STEPS,
            self.probe_rounds,
            self.probe_tokens,
            self.margin,
        )


class PlainConfig(StrictModel):
    """No drafts: every request is decoded plainly."""

    name: Literal["plain"] = "plain"

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return PLAIN


OneAdlConfig = Annotated[
    DiffuSpecConfig | AcceptanceConfig | FixedConfig | GoodputConfig | PlainConfig,
    Field(discriminator="name"),
]


class ByTemperatureConfig(StrictModel):
    """One controller for temperature 0, where texts repeat themselves, and one above it."""

    name: Literal["by_temperature"] = "by_temperature"
    greedy: OneAdlConfig
    sampled: OneAdlConfig


AdlConfig = Annotated[
    DiffuSpecConfig
    | AcceptanceConfig
    | FixedConfig
    | GoodputConfig
    | PlainConfig
    | ByTemperatureConfig,
    Field(discriminator="name"),
]


class BreakerConfig(StrictModel):
    """When to stop asking a drafter: failures in a row, then a pause that doubles up to a cap."""

    threshold: int = Field(default=3, ge=1)
    cooldown_s: float = Field(default=0.5, gt=0)
    max_cooldown_s: float = Field(default=4.0, gt=0)

    def breaker(self) -> Breaker:
        """Return a closed breaker."""
        return Breaker(self.threshold, self.cooldown_s, self.max_cooldown_s)


class RetryConfig(StrictModel):
    """How to come back after a peer is lost: pauses in seconds double from initial_s to max_s."""

    attempts: int = Field(default=20, ge=0)
    initial_s: float = Field(default=0.05, gt=0)
    max_s: float = Field(default=2.0, gt=0)

    def pause_s(self, failures: int) -> float:
        """Return the pause after that many failures in a row; none before the first."""
        return min(self.initial_s * 2.0 ** min(failures - 1, 30), self.max_s) if failures else 0.0


class DraftConfig(StrictModel):
    """How a drafter works on a block, whatever the proposal (foredraft.types.DraftParams)."""

    steps: int = Field(default=1, ge=1, le=MAX_DENOISING_STEPS)
    extend: bool = False
    first: FirstTokens = FirstTokens.DIFFUSION
    first_tokens: int = Field(default=0, ge=0, le=MAX_PREFIX)

    @property
    def params(self) -> DraftParams:
        """These values as they travel."""
        return DraftParams(self.steps, self.extend, self.first, self.first_tokens)


class NgramConfig(StrictModel):
    """Drafts made of the text's own n-grams, before a drafter is asked (foredraft.ngram.tree)."""

    enabled: bool = False
    # How many tokens of a tree must be expected to be accepted; with fewer a drafter is asked.
    min_expected_tokens: float = Field(default=MIN_EXPECTED_TOKENS, gt=0, le=MAX_DRAFT)
    # The longest branch, and how many of the text's last tokens are looked at.
    depth: int = Field(default=DEPTH, ge=1, le=MAX_DRAFT)
    window: int = Field(default=WINDOW, ge=1, le=MAX_PREFIX)
    # The weights, in occurrences, of something new after the last 1, 2, ... tokens.
    pseudocounts: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...] = Field(
        default=PSEUDOCOUNTS, min_length=1, max_length=8
    )
    # The least probability of a node.
    min_node_prob: float = Field(default=MIN_NODE_PROB, ge=1e-6, le=1)

    @property
    def params(self) -> NgramParams | None:
        """These values as they are used, None if they are not."""
        if not self.enabled:
            return None
        values = (self.min_expected_tokens, self.depth, self.window, self.pseudocounts)
        return NgramParams(*values, self.min_node_prob)


class OrchestratorConfig(StrictModel):
    """How sessions are driven."""

    adl: AdlConfig = DiffuSpecConfig()
    # How drafters turn a lattice into a block; "coupled" is argmax at temperature 0.
    proposal: Proposal = Proposal.COUPLED
    draft: DraftConfig = DraftConfig()
    ngram: NgramConfig = NgramConfig()
    # Which rule decides what is accepted; only "coupled" gives the tokens of plain decoding.
    acceptance: Acceptance = Acceptance.COUPLED
    # How long a round waits for its draft before it goes on plainly.
    draft_deadline_ms: float = Field(default=50.0, gt=0)
    # Tokens per round when nothing is ever drafted; fewer make the stream smoother.
    plain_steps: int = Field(default=PLAIN_STEPS, ge=1, le=MAX_PLAIN_STEPS)
    # Tokens per plain round while a draft is late or the drafter is away.
    fallback_steps: int = Field(default=4, ge=1, le=MAX_PLAIN_STEPS)
    breaker: BreakerConfig = BreakerConfig()
    # Failures in a row, without one verdict between them, that a lost verifier may cost.
    verifier_retry: RetryConfig = RetryConfig()
    # How long a late draft may stay unanswered before the drafter counts as lost, in seconds.
    drafter_timeout_s: float = Field(default=1.0, gt=0)
    # Bounds on one open, one verification and the closing of both streams, in seconds.
    open_timeout_s: float = Field(default=60.0, gt=0)
    verify_timeout_s: float = Field(default=60.0, gt=0)
    close_timeout_s: float = Field(default=2.0, gt=0)
    # The next draft is requested ahead of the verdict while this share of outcomes is predicted.
    run_ahead_min_hit_rate: float = Field(default=0.15, ge=0, le=1)
    # How many rounds at a time a verifier may lead, which then asks the drafter itself; 0: none.
    verifier_led_rounds: int = Field(default=0, ge=0, le=MAX_LED_ROUNDS)
    # Committed rounds that may wait for a slow reader before decoding pauses.
    read_ahead: int = Field(default=4, ge=1)

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
