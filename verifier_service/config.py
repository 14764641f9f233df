"""The verifier's configuration: one strict record, validated once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from foredraft.rpc.config import ServiceConfig
from foredraft.strict import StrictModel
from verifier_service.kv.block_table import SHARE_FACTOR


class FeaturesConfig(StrictModel):
    """Hidden states of the target, fused for a drafter that reads them."""

    model: Path = Field(
        description="Folder of that drafter, of which only the fusion's weights are read."
    )


class TargetConfig(ServiceConfig):
    """One process of a target: the model, its KV cache and its forward passes."""

    model: Path = Field(description="Folder of the target.")
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
        description="exact refuses to start unless a token's logits are the same in every batch.",
    )
    forward: Literal["auto", "transformers"] = Field(
        default="auto",
        description="Forward pass; auto is the compiled one where the model and the CPU allow it.",
    )
    kv_tokens: int = Field(
        default=32768, ge=1024, description="Size of the KV cache of all sessions, in tokens."
    )
    block_tokens: int = Field(
        default=64, ge=64, multiple_of=64, description="Size of a block of the KV cache, in tokens."
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


class VerifierConfig(TargetConfig):
    """One verifier process."""

    model: Path = Field(
        description="Folder of the target: a transformers causal language model in safetensors. Or "
        "a GGUF file, which is converted once, into the user's cache."
    )
    quantization: Literal["none", "int8", "int4"] = Field(
        default="none",
        description="Quantization of the decoder's linear layers at load time, by torchao (the "
        "extra quant). It needs the forward of transformers, one rank, and bf16 or fp32.",
    )
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Ranks that share the model; each has a part of it, and `threads` of its own.",
    )
    attention: Literal["auto", "native", "matmul", "flex"] = Field(
        default="auto",
        description="Attention; auto is flex on a GPU, and on a CPU native where it was compiled, "
        "else matmul.",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        default="auto",
        description="auto records forward passes of up to 640 rows as CUDA graphs at load time, "
        "on a GPU with flex attention, without ranks and without features.",
    )
    isa: Literal["auto", "amx", "avx512", "avx2"] = Field(
        default="auto",
        description="Instruction set of the compiled forward; auto is the best that the CPU has.",
    )
    features: FeaturesConfig | None = Field(
        default=None,
        description="Fused hidden states for drafters that read them; needs one rank. The "
        "compiled forward cannot return the last layer's hidden states.",
    )
    kv_overcommit: float = Field(
        default=1.0,
        ge=1,
        le=64,
        description="Factor by which sessions may reserve more than the KV cache holds; above 1 a "
        "session may lose its KV to an older one and repeat its prefill.",
    )
    plain_round_ms: float = Field(
        default=250.0,
        gt=0,
        description="Time of forward passes after which a plain round ends with the tokens that it "
        "has, in milliseconds: under load it keeps streams from pausing for all of its tokens.",
    )
