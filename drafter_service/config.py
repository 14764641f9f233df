"""The drafter's configuration: strict, validated once, passed down in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from foredraft.followers import DEPTH, PSEUDOCOUNTS, WINDOW
from foredraft.limits import MAX_CANDIDATES, MAX_DRAFT
from foredraft.strict import StrictModel

Weight = Annotated[float, Field(ge=0)]


class ScorerConfig(StrictModel):
    """The causal proxy: a linear mixture of the parts with a weight above 0; none means uniform."""

    edge: Weight = 0.6
    """The model's own edge head."""
    context: Weight = 0.3
    """n-grams of the session's own text."""
    static: Weight = 0.0
    """The n-gram table that comes with the model; left out where the model has none."""
    kenlm: Weight = 0.0
    """A KenLM model over token ids, from kenlm_path; needs the kenlm package."""
    kenlm_path: Path | None = None
    lm: Weight = 0.0
    """A causal language model of the vocabulary that is drafted in, from the folder lm_path."""
    lm_path: Path | None = None
    lm_window: int = Field(default=64, ge=1)
    """How many of the text's last tokens the language model sees."""
    context_order: int = Field(default=4, ge=1, le=8)
    context_window: int = Field(default=4096, ge=1)


class CPSConfig(StrictModel):
    """Path search (DiffuSpec Sec. 4.2): tau and M_max of Eq. 6, lambda of Eq. 7, the beam."""

    tau: float = Field(default=0.95, gt=0, le=1)
    max_candidates: int = Field(default=8, ge=1)
    weight: float = Field(default=0.2, ge=0, le=1)
    beam: int = Field(default=4, ge=1)
    scorer: ScorerConfig = ScorerConfig()


class LookupConfig(StrictModel):
    """Copying alone, without a model (prompt lookup decoding)."""

    shortest: int = Field(default=2, ge=1, le=8)
    """Least length of a match, in tokens."""
    max_tokens: int = Field(default=15, ge=1, le=MAX_DRAFT)
    """Most tokens of a block."""


class SampledConfig(StrictModel):
    """Drafts that say what each token was drawn from (core/sampled.py)."""

    candidates: int = Field(default=32, ge=1, le=MAX_CANDIDATES)
    """Most candidates that a token is drawn from; what travels grows with it."""


class ExtendConfig(StrictModel):
    """How a path grows where a session asks for params.extend (FailFast)."""

    block: int = Field(default=7, ge=1, le=MAX_DRAFT)
    """Tokens drafted at once; cut to what the model's mask slots allow."""
    confidence: float = Field(default=0.5, ge=0, le=1)
    """Least probability of each token of a block that is to be followed by another."""
    max_tokens: int = Field(default=31, ge=1, le=MAX_DRAFT)
    """Most tokens of a path; fewer if fewer are asked for."""


class TreeConfig(StrictModel):
    """How a draft tree is grown (core/draft_tree.py, TreeParams)."""

    depth: int = Field(default=8, ge=1, le=MAX_DRAFT)
    """Longest branch, in tokens: the mask slots of a pass."""
    max_nodes: int = Field(default=63, ge=1, le=MAX_DRAFT)
    """Most nodes that may be asked for."""
    least_mass: float = Field(default=0.02, ge=0, lt=1)
    """A node that the target is expected to reach with less probability is left out."""
    sharpness: float = Field(default=1.2, gt=0)
    """Exponent of the model's probabilities at temperature 0."""
    noisy_sharpness: float = Field(default=1.0, gt=0)
    """Above it, where the target's own noise is known and the model's error decides."""
    text_depth: int = Field(default=DEPTH, ge=1, le=MAX_DRAFT)
    """Longest branch where the session's own text tells how it goes on."""
    text_window: int = Field(default=WINDOW, ge=1)
    """How many of the text's last tokens tell."""
    pseudocounts: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=PSEUDOCOUNTS, max_length=7
    )
    """Occurrences in the text, of what followed the last 1, 2, ... tokens, that weigh as much as
    what was expected before; empty to leave the text out."""


class DrafterConfig(StrictModel):
    """One drafter process."""

    model: Path
    """The drafter's folder: config.json, model.safetensors."""
    tokenizer: Path | None = None
    """The tokenizer.json whose hash is reported; by default the one beside the model's folder."""
    target_tokenizer: Path | None = None
    """The target's tokenizer.json, where it is another: the drafter then speaks in its tokens."""
    target: Path | None = None
    """The target's folder, for a family that uses its target's embedding and head (DFlash)."""
    family: Literal["dream", "llada", "sdar", "open_dcoder", "fast_dllm_v2", "mdlm"] | None = None
    """The family of a public checkpoint, where its config.json does not tell."""
    mask_token_id: int | None = Field(default=None, ge=0)
    """The mask token of a public checkpoint, where its config.json does not tell."""
    max_block: int = Field(default=16, ge=2, le=MAX_DRAFT + 1)
    """Most mask slots of a public checkpoint's pass; the embedded family's own file tells its."""
    max_len: int | None = Field(default=None, ge=64)
    """Most tokens of a public checkpoint's session, mask slots included; by default its own."""
    prefix_refresh: int = Field(default=64, ge=0)
    """After how many tokens more a fully bidirectional public checkpoint reads a session's text
    anew, whose keys and values it caches till then though what followed has changed them; 0: in
    every pass. Measured in docs/families.md."""
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """Where a public checkpoint runs; the embedded family runs on a CPU."""
    dtype: Literal["int8", "bfloat16", "float32"] | None = None
    """By default int8 for the embedded family, bfloat16 for others, which have no int8."""
    isa: Literal["auto", "avx512", "avx2", "none"] = "auto"
    """Instruction set of the compiled int8 forward: auto is the best that the CPU has, none is
    torch's operations."""
    threads: int = Field(default=1, ge=1)
    candidates: int = Field(default=32, ge=2)
    """Candidates taken from each slot before pruning; EOS is always one of them."""
    cps: CPSConfig = CPSConfig()
    tree: TreeConfig = TreeConfig()
    lookup: LookupConfig = LookupConfig()
    sampled: SampledConfig = SampledConfig()
    extend: ExtendConfig = ExtendConfig()
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    """0 picks a free one."""
    max_sessions: int = Field(default=512, ge=1)
    """Streams at once; a request with direct rounds takes two, the orchestrator's and the
    verifier's."""
    cache_tokens: int = Field(default=65_536, ge=1)
    """Bound on cached tokens of all sessions together; the least recent session gives way."""
    prefill_rows: int = Field(default=256, ge=1)
    """Most prefix tokens of one session in one pass."""
    max_queue: int = Field(default=1024, ge=1)
    """Proposals that may wait; one more is refused."""
    max_pending: int = Field(default=8, ge=1, le=MAX_DRAFT)
    """Unanswered proposals of one stream, beyond which it is not read."""
    idle_ttl_s: float = Field(default=300.0, gt=0)
    """A stream that asks for nothing for so long is ended."""
    open_timeout_s: float = Field(default=10.0, gt=0)
    """A stream must open within this time."""
