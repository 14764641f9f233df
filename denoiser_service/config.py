"""The denoiser's configuration: one strict record, validated once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from foredraft.limits import MAX_STATES
from foredraft.rpc.config import ServiceConfig
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import SHARE_FACTOR


class DenoiserConfig(ServiceConfig):
    """One denoiser process."""

    model: Path = Field(
        description="Folder of the target: a decoder in safetensors whose config.json has "
        "block_diffusion, and beside it, where drafts are wanted, a draft_graph.json."
    )
    name: str = Field(
        default="", description="Name of the target in logs; by default the folder's name."
    )
    dtype: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16",
        description="Number format of the arithmetic and of the KV cache; the compiled forward "
        "has no fp16.",
    )
    device: str = Field(
        default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Device of the target."
    )
    threads: int = Field(default=1, ge=1, le=256, description="CPU threads of a forward pass.")
    numerics: Literal["exact", "fast"] = Field(
        default="fast",
        description="exact refuses to start unless a state's logits are the same in every batch.",
    )
    forward: Literal["auto", "transformers"] = Field(
        default="auto",
        description="Forward pass; auto is the compiled one where the model and the CPU allow it.",
    )
    kv_tokens: int = Field(
        default=32768, ge=1024, description="Size of the KV cache of all sessions, in tokens."
    )
    block_tokens: int = Field(
        default=64,
        ge=64,
        multiple_of=64,
        description="Size of a block of the KV cache, in tokens: a multiple of the model's slots.",
    )
    prefix_cache_tokens: int | None = Field(
        default=8192,
        ge=0,
        description="KV kept for later sessions after its last session has ended, in tokens; "
        "null: all of it. On a CPU it takes memory only once it is used.",
    )
    kv_share_factor: float = Field(
        default=SHARE_FACTOR,
        ge=0.1,
        le=1000,
        description="How many times the free KV, and the free sessions, one request or one tenant "
        "may hold: with 3, alone three quarters of all, two of them three sevenths each.",
    )
    max_sessions: int = Field(default=64, ge=1, description="Most open sessions.")
    row_budget: int = Field(
        default=256, ge=2, description="Most rows (tokens of all sessions) in one forward pass."
    )
    prefill_rows: int = Field(
        default=64,
        ge=1,
        description="Rows of a forward pass that are reserved for waiting prefills.",
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
        shared = VerifierConfig.model_fields.keys() & type(self).model_fields.keys()
        return VerifierConfig(**{name: getattr(self, name) for name in shared})
