"""The verifier's configuration: one strict record, validated once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from foredraft.strict import StrictModel


class FeaturesConfig(StrictModel):
    """The drafter that reads the target's hidden states."""

    model: Path = Field(description="its directory, of which only the fusion's weights are read")


class VerifierConfig(StrictModel):
    """How one verifier process runs."""

    model: Path = Field(description="directory of a transformers causal LM, safetensors only")
    name: str = Field(default="", description="what the model is called in logs; default: folder")
    dtype: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16",
        description="what the model computes in and keeps its KV in; compiled code takes no fp16",
    )
    quantization: Literal["none", "int8", "int4"] = Field(
        default="none",
        description="of the decoder's linear layers as they are loaded, by torchao (the extra "
        "quant); with it the forward is that of transformers, in one rank, in bf16 or fp32",
    )
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    tensor_parallel: int = Field(
        default=1, ge=1, le=64, description="ranks that share the model, each with a part of it"
    )
    threads: int = Field(
        default=1, ge=1, le=256, description="CPU threads of one forward, on each rank"
    )
    numerics: Literal["exact", "fast"] = Field(
        default="fast", description="exact refuses to start unless the forward is row-invariant"
    )
    attention: Literal["auto", "native", "matmul", "flex"] = Field(
        default="auto",
        description="auto is flex on a GPU, and on a CPU native where it was built, else matmul",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        default="auto",
        description="auto records passes of up to 640 rows as CUDA graphs while the model is "
        "loaded, where the device is a GPU, the attention flex, and there are no ranks or features",
    )
    forward: Literal["auto", "transformers"] = Field(
        default="auto",
        description="auto is the compiled forward where the model and the CPU allow it",
    )
    isa: Literal["auto", "avx512", "avx2"] = Field(
        default="auto",
        description="instruction set of the compiled forward; auto is the best that the CPU has",
    )
    features: FeaturesConfig | None = Field(
        default=None,
        description="fuses hidden states for drafters that read them, in one rank; the compiled "
        "forward tells none of the last layer's",
    )
    kv_tokens: int = Field(
        default=32768, ge=1024, description="KV cache of all sessions, in tokens"
    )
    block_tokens: int = Field(
        default=64, ge=64, multiple_of=64, description="tokens of a block of the KV cache"
    )
    prefix_cache_tokens: int | None = Field(
        default=8192,
        ge=0,
        description="KV kept for later sessions when no session uses it, in tokens; null: all. "
        "On a CPU it takes memory only once it is used",
    )
    kv_overcommit: float = Field(
        default=1.0,
        ge=1,
        le=64,
        description="how often the KV cache may be reserved; above 1 a session may lose its KV to "
        "an older one and read its text again",
    )
    max_sessions: int = Field(default=64, ge=1)
    row_budget: int = Field(default=256, ge=2, description="token rows of one forward")
    idle_steps: int = Field(
        default=0,
        ge=0,
        le=16,
        description="tokens that a session is decoded ahead of its next round while nothing waits",
    )
    prefill_rows: int = Field(default=64, ge=1, description="rows kept for waiting prefills")
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535, description="0 picks a free port")
    idle_ttl_s: float = Field(default=300.0, gt=0, description="a silent session is ended after it")
    grace_s: float = Field(default=20.0, ge=0, description="time that open sessions get on drain")
