"""The configuration of draft length controllers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from foredraft.limits import MAX_DRAFT
from foredraft.strict import StrictModel
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
    """DiffuSpec's controller (Sec. 4.3, Eq. 8-10)."""

    name: Literal["diffuspec"] = Field(
        default="diffuspec", description="Name of this kind of controller."
    )
    k_min: int = Field(default=4, ge=1, le=MAX_DRAFT, description="Shortest draft, in tokens.")
    k_max: int = Field(
        default=16, ge=1, le=MAX_DRAFT, description="Longest draft and the first one, in tokens."
    )
    rho: float = Field(
        default=0.5, gt=0, le=1, description="Weight of the newest draft in the averages (Eq. 9)."
    )
    delta: float = Field(
        default=4.0,
        gt=0,
        description="Tokens added while drafts are accepted whole (Eq. 10).",
    )

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

    name: Literal["acceptance"] = Field(
        default="acceptance", description="Name of this kind of controller."
    )
    k_min: int = Field(default=2, ge=1, le=MAX_DRAFT, description="Shortest draft, in tokens.")
    k_max: int = Field(default=15, ge=1, le=MAX_DRAFT, description="Longest draft, in tokens.")
    k_start: int = Field(default=8, ge=1, le=MAX_DRAFT, description="First draft, in tokens.")
    rho: float = Field(
        default=0.3, gt=0, le=1, description="Weight of the newest draft in the average."
    )
    delta: float = Field(
        default=3.0, gt=0, description="Tokens added to the average accepted length."
    )

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

    name: Literal["fixed"] = Field(default="fixed", description="Name of this kind of controller.")
    k: int = Field(default=8, ge=1, le=MAX_DRAFT, description="Length of every draft, in tokens.")

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return FixedController(self.k)


class GoodputConfig(StrictModel):
    """The most committed tokens per second, by measured acceptance and costs (goodput.py)."""

    name: Literal["goodput"] = Field(
        default="goodput", description="Name of this kind of controller."
    )
    lengths: tuple[Annotated[int, Field(ge=0, le=MAX_DRAFT)], ...] = Field(
        default=(0, 4, 6, 8, 11, 15),
        description="Draft lengths to choose from, in tokens; 0 is plain decoding.",
    )
    prior: float = Field(
        default=0.8,
        gt=0,
        lt=1,
        description="Acceptance probability of a token after accepted ones, before any was seen.",
    )
    probe_share: float = Field(
        default=0.003,
        gt=0,
        le=1,
        description="Share of plainly decoded tokens that trying drafts again may cost.",
    )
    margin: float = Field(
        default=1.1,
        ge=1,
        description="Factor by which drafts must be expected to beat plain decoding.",
    )

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
            self.probe_share,
            self.margin,
        )


class PlainConfig(StrictModel):
    """No drafts: every request is decoded plainly."""

    name: Literal["plain"] = Field(default="plain", description="Name of this kind of controller.")

    def controller(self) -> DraftLengthController[Any]:
        """Return the controller these values describe."""
        return PLAIN


OneAdlConfig = Annotated[
    DiffuSpecConfig | AcceptanceConfig | FixedConfig | GoodputConfig | PlainConfig,
    Field(discriminator="name"),
]


class ByTemperatureConfig(StrictModel):
    """One controller for temperature 0, where texts repeat themselves, and one above it."""

    name: Literal["by_temperature"] = Field(
        default="by_temperature", description="Name of this kind of controller."
    )
    greedy: OneAdlConfig = Field(description="Controller of requests at temperature 0.")
    sampled: OneAdlConfig = Field(description="Controller of requests above temperature 0.")


AdlConfig = Annotated[
    DiffuSpecConfig
    | AcceptanceConfig
    | FixedConfig
    | GoodputConfig
    | PlainConfig
    | ByTemperatureConfig,
    Field(discriminator="name"),
]
