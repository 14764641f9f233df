"""The denoiser's configuration: one strict record, validated once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from foredraft.limits import MAX_STATES
from verifier_service.config import TargetConfig, VerifierConfig


class DenoiserConfig(TargetConfig):
    """One denoiser process."""

    model: Path = Field(
        description="Folder of the target: a decoder in safetensors whose config.json has "
        "block_diffusion, and beside it, where drafts are wanted, a draft_graph.json."
    )
    numerics: Literal["exact", "fast"] = Field(
        default="fast",
        description="exact refuses to start unless a state's logits are the same in every batch.",
    )
    block_tokens: int = Field(
        default=64,
        ge=64,
        multiple_of=64,
        description="Size of a block of the KV cache, in tokens: a multiple of the model's slots.",
    )
    most_drafts: int = Field(
        default=8,
        ge=0,
        le=MAX_STATES,
        description="Most drafted states of a session in one pass; each takes a block of the KV "
        "cache while the session is open.",
    )

    def target(self) -> VerifierConfig:
        """Return what loads the model: its weights, forward and KV cache, as a verifier's."""
        return VerifierConfig(**{name: getattr(self, name) for name in TargetConfig.model_fields})
