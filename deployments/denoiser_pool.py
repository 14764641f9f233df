"""The denoiser deployment: a block-diffusion target beside the one that reads left to right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from denoiser_service.config import DenoiserConfig
from deployments.pools import PoolConfig
from foredraft.denoising import Dynamic, Static
from foredraft.errors import ConfigError
from foredraft.limits import MAX_BLOCK_LENGTH, MAX_STATES
from foredraft.model_files import tokenizer_file
from foredraft.rpc.config import NO_DELAY, LinkConfig
from foredraft.strict import StrictModel
from orchestrator.config import DenoisingConfig


class StaticUnmasking(StrictModel):
    """Each step fills the same number of slots."""

    kind: Literal["static"] = Field(default="static", description="Names this way of unmasking.")
    per_step: int = Field(
        default=1, ge=1, le=MAX_BLOCK_LENGTH, description="Slots that a step fills, S."
    )

    def rule(self) -> Static:
        """Return it as it travels."""
        return Static(self.per_step)


class DynamicUnmasking(StrictModel):
    """Each step fills all slots of which the model is sure, at least one."""

    kind: Literal["dynamic"] = Field(default="dynamic", description="Names this way of unmasking.")
    threshold: float = Field(
        default=0.9, ge=0, lt=1, description="Probability above which a slot is filled, tau."
    )

    def rule(self) -> Dynamic:
        """Return it as it travels."""
        return Dynamic(self.threshold)


UnmaskingConfig = Annotated[StaticUnmasking | DynamicUnmasking, Field(discriminator="kind")]


class DenoiserPool(PoolConfig):
    """The denoiser deployment: a second model of the API, for /v1/completions alone."""

    link: LinkConfig = Field(
        default=NO_DELAY, description="Delay of every message to and from a denoiser."
    )
    service: DenoiserConfig = Field(
        description="The service in each replica; its host is the replica's node."
    )
    model_name: str | None = Field(
        default=None,
        description="Name of the model in the OpenAI API; default: the name of its folder.",
    )
    tokenizer: Path | None = Field(
        default=None,
        description="Folder of the tokenizer.json that encodes prompts and decodes answers; "
        "default: the model's.",
    )
    unmasking: UnmaskingConfig = Field(
        default=DynamicUnmasking(),
        description="Which slots a step fills, where a request does not say so.",
    )
    drafts: int = Field(
        default=3,
        ge=0,
        le=MAX_STATES,
        description="Most drafted states of a session in one pass, D*; at most "
        "service.most_drafts.",
    )
    decoding: DenoisingConfig = Field(
        default=DenoisingConfig(), description="How sessions go on, and where to."
    )

    @model_validator(mode="after")
    def _room_for_drafts(self) -> DenoiserPool:
        if self.drafts > self.service.most_drafts:
            raise ValueError("drafts is larger than service.most_drafts")
        return self

    @property
    def name(self) -> str:
        """What clients call the model."""
        return self.model_name or self.service.model.name

    @property
    def tokenizer_file(self) -> Path:
        """The tokenizer.json that texts are read with, once paths are absolute.

        Raise ConfigError if there is none.
        """
        folder = self.tokenizer or self.service.model
        found = tokenizer_file(folder)
        if found is None:
            raise ConfigError(
                f"denoiser.tokenizer: {folder} has no tokenizer.json", param="denoiser.tokenizer"
            )
        return found
