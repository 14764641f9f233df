"""From a configuration to an engine: the model's files checked, the model, the strategies."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch

from drafter_service.bridge.bridged import BridgedLM
from drafter_service.bridge.load import load_pair
from drafter_service.compose import Strategies
from drafter_service.config import DrafterConfig
from drafter_service.engine import DrafterEngine
from drafter_service.models.compiled.drafter import NativeDrafter
from drafter_service.models.compiled.packed_weights import supports
from drafter_service.models.embedded.block_causal import BlockCausalDLM, read_config
from drafter_service.models.embedded.drafter import CacheShape, EmbeddedDrafter
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.linear import FloatLinear, Int8Linear
from drafter_service.models.families.adapter import load_family
from drafter_service.models.families.injected import load_injected
from drafter_service.models.marginal import MarginalDrafter
from drafter_service.models.paced import as_configured
from drafter_service.models.port import Capabilities, DiffusionLM
from drafter_service.proposals.proxies.load import load_proxies
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import ConfigError, CorruptModelOutput, ForedraftError, WeightsError
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.messages import DraftOpen, Propose
from foredraft.model_files import sha256, tokenizer_file, verify_files, weights_hash
from foredraft.types import Base, ModelInfo, Proposal, SamplingParams
from foredraft_kernels.loader import choose_isa, load_kernels

log = logging.getLogger(__name__)


def load_engine(config: DrafterConfig) -> DrafterEngine:
    """Return a warmed-up engine. Raise WeightsError or ConfigError if it cannot be had.

    Call it in the thread that will run the engine: torch's thread count is set here.
    """
    torch.set_num_threads(config.threads)
    verify_files(config.model)
    if config.device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"device {config.device} is not available", param="device")
    tokenizer = _own_tokenizer(config)
    loaded = load_model(config)
    model = as_configured(config, loaded if config.edges else MarginalDrafter(loaded))
    if config.target_tokenizer is not None:
        model = bridged(config, model, tokenizer, config.target_tokenizer)
        tokenizer = config.target_tokenizer
    capabilities = model.capabilities
    strategies = load_strategies(config, capabilities)
    info = ModelInfo(
        vocab_size=capabilities.vocab_size,
        max_len=capabilities.max_len,
        tokenizer_hash=sha256(tokenizer) if tokenizer else "",
        numerics=dtype_of(config),
        name=capabilities.name,
        weights_hash=weights_hash(config.model),
        features_hash=capabilities.features_hash,
        features_width=capabilities.features_width,
        eos_token_ids=(capabilities.eos,),
        mask_token_id=capabilities.mask,
    )
    engine = DrafterEngine(model, strategies.make, info, config.max_sessions, config.prefill_rows)
    _warm_up(engine)
    return engine


def _own_tokenizer(config: DrafterConfig) -> Path | None:
    # A drafter that reads with its target's embedding has its target's tokenizer.
    near = [config.model, *([config.target] if config.target else [])]
    found = (tokenizer_file(folder) for folder in near)
    return config.tokenizer or next((path for path in found if path), None)


def bridged(
    config: DrafterConfig, model: DiffusionLM, own: Path | None, target: Path
) -> DiffusionLM:
    """Return the model in the tokens of the target's tokenizer; raise ConfigError."""
    if model.capabilities.features_hash:
        raise ConfigError(
            "a drafter that needs the target's features has its tokens", param="target_tokenizer"
        )
    if config.cps.scorer.static > 0:
        raise ConfigError(
            "the n-gram table is of the drafter's own tokens: no target_tokenizer beside it",
            param="cps.scorer.static",
        )
    c = model.capabilities
    pair = load_pair(own, c.eos, c.vocab_size, target)
    log.info(
        "the drafter has %d of the %d tokens of the target",
        pair.both,
        len(pair.target.spelling),
    )
    return BridgedLM(model, pair, config.prefill_rows)


def load_strategies(config: DrafterConfig, capabilities: Capabilities) -> Strategies:
    """Return the ways to draft, with path search's proxy. Raise WeightsError or ConfigError."""
    proxies = load_proxies(config, capabilities.vocab_size, capabilities.max_mask_slots)
    return Strategies(config, capabilities, proxies, load_kernels())


def load_model(config: DrafterConfig) -> DiffusionLM:
    """Return the model alone, as load_engine uses it. Raise WeightsError.

    The embedded family in int8 runs as compiled code, in one thread, where that was built and suits
    the CPU and the model's sizes.
    """
    try:
        dtype = dtype_of(config)
        if not is_embedded(config):
            if dtype == "int8":
                raise ValueError("only the embedded family runs in int8")
            return load_public(config)
        if config.device != "cpu":
            raise ValueError("the embedded family runs on a CPU only")
        compiled = load_compiled(config) if dtype == "int8" else None
        model = compiled or load_torch(config)
    except (OSError, ValueError) as error:
        raise WeightsError(f"the drafter's model cannot be loaded: {error}") from error
    log.info("the drafter runs in %s, %s", dtype, "compiled" if compiled else "by torch")
    return model


def is_embedded(config: DrafterConfig) -> bool:
    """Return whether the folder's model is of the embedded family; raise as load_torch does."""
    raw = json.loads((config.model / "config.json").read_text())
    return config.family is None and "model_type" not in raw


def dtype_of(config: DrafterConfig) -> str:
    """Return the dtype that is configured, or the family's own."""
    return config.dtype or ("int8" if is_embedded(config) else "bfloat16")


def load_public(config: DrafterConfig) -> DiffusionLM:
    """Return a public checkpoint's drafter; raise as load_torch does, or ConfigError."""
    raw = json.loads((config.model / "config.json").read_text())
    dtype = getattr(torch, dtype_of(config))
    if "dflash_config" in raw:
        if config.target is None:
            raise ConfigError("a DFlash drafter needs its target's folder", param="target")
        return load_injected(
            config.model,
            config.target,
            dtype=dtype,
            device=config.device,
            num_candidates=config.candidates,
            max_mask_slots=config.max_mask_slots,
            max_sessions=config.max_sessions,
        )
    if config.family is None and raw.get("model_type") == "diffusion_gemma":
        # Imported here, as the other families need nothing of transformers.
        from drafter_service.models.families.diffusion_gemma import load_diffusion_gemma

        return load_diffusion_gemma(
            config.model,
            dtype=dtype,
            device=config.device,
            num_candidates=config.candidates,
            max_mask_slots=config.max_mask_slots,
            max_len=config.max_len,
            cache_tokens=config.cache_tokens,
        )
    return load_family(
        config.model,
        family=config.family,
        mask_token_id=config.mask_token_id,
        dtype=dtype,
        device=config.device,
        num_candidates=config.candidates,
        max_mask_slots=config.max_mask_slots,
        max_sessions=config.max_sessions,
        max_len=config.max_len,
        cache_tokens=config.cache_tokens,
        refresh=config.prefix_refresh,
    )


def load_compiled(config: DrafterConfig) -> NativeDrafter | None:
    """Return the compiled int8 drafter, or None where it cannot run. Raise as load_torch does."""
    kernels, wanted = load_kernels(), config.isa
    isa = None if wanted == "none" else choose_isa(kernels, "int8", wanted)
    if kernels is None or isa is None:
        return None
    if not supports(read_config(config.model), config.candidates):
        return None
    model = BlockCausalDLM.load(config.model, torch.float32, config.target)
    shape = _cache_shape(config, model)
    features = _features_hash(config, model)
    return NativeDrafter(model, shape, config.candidates, kernels, isa, features)


def load_torch(config: DrafterConfig) -> EmbeddedDrafter:
    """Return the drafter on torch's operations.

    Raises FileNotFoundError for a missing file and ValueError for weights that cannot be used.
    """
    dtype = dtype_of(config)
    wide = torch.float32 if dtype == "int8" else getattr(torch, dtype)
    model = BlockCausalDLM.load(config.model, wide, config.target)
    # torch's batched matmul copies strided bf16 operands, as a slice of a cache is; not fp32 ones.
    cache_dtype = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    linear = Int8Linear if dtype == "int8" else FloatLinear
    fused, features = FusedBlockCausal(model, linear), _features_hash(config, model)
    shape = _cache_shape(config, model)
    return EmbeddedDrafter(fused, shape, config.candidates, cache_dtype, features)


def _features_hash(config: DrafterConfig, model: BlockCausalDLM) -> str:
    return read_fusion(config.model).hash if model.config.target_layer_ids else ""


def _cache_shape(config: DrafterConfig, model: BlockCausalDLM) -> CacheShape:
    tokens = model.config.max_position_embeddings
    return CacheShape(max(1, config.cache_tokens // tokens), tokens, config.branch_slots)


def _warm_up(engine: DrafterEngine) -> None:
    """Run one block, so that no session waits for it; raise if its scores are not finite."""
    prefix = (0,) * 32
    opening = DraftOpen("warm-up", prefix, SamplingParams(), Proposal.CPS, len(prefix))
    handle, opened = engine.open(opening)
    base = Base("warm-up", 0, len(prefix), hash_prefix(prefix))
    features = bytes(size(len(prefix) - 1, opened.model.features_width))
    request = Propose(base, len(prefix), (), opened.max_draft_tokens, features)
    [answer] = engine.propose([(handle, request)])
    engine.close(handle)
    if isinstance(answer, CorruptModelOutput):
        raise WeightsError("the drafter's scores are not finite")
    if isinstance(answer, ForedraftError):
        raise answer
