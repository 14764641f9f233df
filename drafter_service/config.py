"""The drafter's configuration: strict, validated once, passed down in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from foredraft.limits import MAX_CANDIDATES, MAX_DRAFT, MAX_TEXTS
from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW
from foredraft.rpc.config import ServiceConfig
from foredraft.strict import StrictModel

Weight = Annotated[float, Field(ge=0)]


class ScorerConfig(StrictModel):
    """The causal proxy: a linear mixture of the parts with a weight above 0; none means uniform."""

    edge: Weight = Field(default=0.6, description="Weight of the model's own edge head.")
    context: Weight = Field(
        default=0.3, description="Weight of n-grams of the session's own tokens."
    )
    static: Weight = Field(
        default=0.0,
        description="Weight of the n-gram table in the model's folder; ignored without one.",
    )
    kenlm: Weight = Field(
        default=0.0,
        description="Weight of a KenLM model over token ids; needs the kenlm package.",
    )
    kenlm_path: Path | None = Field(default=None, description="File of the KenLM model.")
    lm: Weight = Field(
        default=0.0,
        description="Weight of a causal language model with the drafter's vocabulary.",
    )
    lm_path: Path | None = Field(default=None, description="Folder of the causal language model.")
    lm_window: int = Field(
        default=64, ge=1, description="Last tokens that the causal language model reads."
    )
    context_order: int = Field(
        default=4, ge=1, le=8, description="Longest n-gram of the session's own tokens, in tokens."
    )
    context_window: int = Field(
        default=4096, ge=1, description="Last tokens of the session whose n-grams are counted."
    )


class CPSConfig(StrictModel):
    """Causal-consistency path search (DiffuSpec Sec. 4.2)."""

    tau: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Probability mass of the candidates kept at a position (tau of Eq. 6).",
    )
    max_candidates: int = Field(
        default=8, ge=1, description="Most candidates kept at a position (M_max of Eq. 6)."
    )
    weight: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share of the causal proxy in a path's score (lambda of Eq. 7).",
    )
    beam: int = Field(default=4, ge=1, description="Paths kept at each position of the search.")
    scorer: ScorerConfig = Field(default=ScorerConfig(), description="The causal proxy.")


class LookupConfig(StrictModel):
    """Copying alone, without a model (prompt lookup decoding)."""

    shortest: int = Field(default=2, ge=1, le=8, description="Shortest match, in tokens.")
    max_tokens: int = Field(default=15, ge=1, le=MAX_DRAFT, description="Most tokens of a block.")


class SampledConfig(StrictModel):
    """Sampled drafts, which report the distribution that each token was drawn from."""

    candidates: int = Field(
        default=32,
        ge=1,
        le=MAX_CANDIDATES,
        description="Most candidates that a token is drawn from; the message grows with them.",
    )


class ExtendConfig(StrictModel):
    """How a path grows while the model is confident, where a session asks for it (FailFast)."""

    block: int = Field(
        default=7,
        ge=1,
        le=MAX_DRAFT,
        description="Tokens drafted by one forward pass; at most the model's mask slots.",
    )
    confidence: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Least probability of every token of a block for another block to follow it.",
    )
    max_tokens: int = Field(
        default=31,
        ge=1,
        le=MAX_DRAFT,
        description="Most tokens of a path; fewer if fewer are requested.",
    )


class TreeConfig(StrictModel):
    """How a draft tree is grown."""

    depth: int = Field(
        default=8,
        ge=1,
        le=MAX_DRAFT,
        description="Longest branch from the model, in tokens: the mask slots of a forward pass.",
    )
    max_nodes: int = Field(
        default=63, ge=1, le=MAX_DRAFT, description="Most nodes that a request may ask for."
    )
    min_node_prob: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="Least expected probability that the target's sequence contains a node; nodes "
        "below it are left out.",
    )
    confidence_exponent: float = Field(
        default=1.2, gt=0, description="Exponent of the model's probabilities at temperature 0."
    )
    confidence_exponent_sampled: float = Field(
        default=1.0,
        gt=0,
        description="Exponent of the model's probabilities above temperature 0, where the target's "
        "own noise is known.",
    )
    text_depth: int = Field(
        default=DEPTH,
        ge=1,
        le=MAX_DRAFT,
        description="Longest branch from n-grams of the session's own tokens, in tokens.",
    )
    text_window: int = Field(
        default=WINDOW, ge=1, description="Last tokens of the session whose n-grams are counted."
    )
    pseudocounts: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=PSEUDOCOUNTS,
        max_length=7,
        description="Weight of the previous estimate against the n-grams after the last 1, 2, ... "
        "tokens, in occurrences; empty leaves the n-grams out.",
    )


class DrafterConfig(ServiceConfig):
    """One drafter process."""

    model: Path = Field(description="Folder of the drafter with config.json and model.safetensors.")
    tokenizer: Path | None = Field(
        default=None,
        description="The tokenizer.json whose hash is reported; by default the one beside the "
        "model's folder.",
    )
    target_tokenizer: Path | None = Field(
        default=None,
        description="The target's tokenizer.json where it differs from the drafter's; drafts are "
        "then translated to the target's tokens.",
    )
    target: Path | None = Field(
        default=None,
        description="Folder of the target, or its GGUF file, for a drafter that uses the target's "
        "embedding and head (DFlash, a drafter with a shortlist).",
    )
    family: Literal["dream", "llada", "sdar", "open_dcoder", "fast_dllm_v2", "mdlm"] | None = Field(
        default=None,
        description="Family of a public checkpoint, where its config.json does not name it.",
    )
    mask_token_id: int | None = Field(
        default=None,
        ge=0,
        description="Mask token of a public checkpoint, where its config.json does not name it.",
    )
    max_mask_slots: int = Field(
        default=16,
        ge=2,
        le=MAX_DRAFT + 1,
        description="Most mask slots in a forward pass of a public checkpoint; the embedded "
        "family's config.json names its own.",
    )
    max_len: int | None = Field(
        default=None,
        ge=64,
        description="Most tokens of a public checkpoint's session, mask slots included; by "
        "default the checkpoint's own.",
    )
    prefix_refresh: int = Field(
        default=64,
        ge=0,
        description="New tokens after which a fully bidirectional public checkpoint computes a "
        "session's cached keys and values again; 0: in every forward pass. Measurements: "
        "docs/benchmarks.md.",
    )
    device: str = Field(
        default="cpu",
        pattern=r"^(cpu|cuda(:\d+)?)$",
        description="Device of a public checkpoint; the embedded family runs on a CPU.",
    )
    dtype: Literal["int8", "bfloat16", "float32"] | None = Field(
        default=None,
        description="Number format of the weights; by default int8 for the embedded family and "
        "bfloat16 for others, which have no int8.",
    )
    isa: Literal["auto", "amx", "avx512", "avx2", "none"] = Field(
        default="auto",
        description="Instruction set of the compiled int8 forward; auto is the best that the CPU "
        "has, none is torch's operations.",
    )
    threads: int = Field(default=1, ge=1, description="CPU threads of a forward pass.")
    candidates: int = Field(
        default=32,
        ge=2,
        description="Candidates taken at each position before pruning; the end token is always "
        "one of them.",
    )
    edges: bool = Field(
        default=True,
        description="Whether a slot's candidates depend on the token before, through the model's "
        "edge head; false: each slot's own distribution alone, as DiffuSpec and DEER draft.",
    )
    cps: CPSConfig = Field(default=CPSConfig(), description="Path search, for the proposal cps.")
    tree: TreeConfig = Field(default=TreeConfig(), description="Draft trees.")
    lookup: LookupConfig = Field(
        default=LookupConfig(), description="Prompt lookup, for the proposal lookup."
    )
    sampled: SampledConfig = Field(
        default=SampledConfig(), description="Sampled drafts, for the proposal sampled."
    )
    extend: ExtendConfig = Field(
        default=ExtendConfig(), description="Paths that grow while the model is confident."
    )
    max_sessions: int = Field(
        default=512,
        ge=1,
        description="Most open sessions; a request with a lease takes two, the "
        "orchestrator's and the verifier's.",
    )
    max_texts: int = Field(
        default=256,
        ge=1,
        le=MAX_TEXTS,
        description="Most texts that a stream of DraftTexts remembers; each is a session.",
    )
    cache_tokens: int = Field(
        default=65_536,
        ge=1,
        description="Most cached tokens of all sessions together; the least recently used session "
        "loses its cache first.",
    )
    branch_slots: int = Field(
        default=16,
        ge=0,
        le=1024,
        description="Most drafts of a forward pass beside the first one of each session, where "
        "drafts are made for several predicted outcomes; the embedded family alone has them.",
    )
    prefill_rows: int = Field(
        default=256, ge=1, description="Most prefix tokens of one session in one forward pass."
    )
    max_queue: int = Field(
        default=1024, ge=1, description="Most waiting proposals; further ones are refused."
    )
    max_pending: int = Field(
        default=8,
        ge=1,
        le=MAX_DRAFT,
        description="Most unanswered proposals of one session; further ones are not read.",
    )
