"""From a configuration to a running engine: threads, weights, attention, measured numerics."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from foredraft.errors import ConfigError
from foredraft.model_files import computed_by, tokenizer_file
from foredraft.types import ModelInfo
from foredraft_kernels.loader import choose_isa, load_kernels
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models import numerics
from verifier_service.models.attention.flex import FlexAttention, flex
from verifier_service.models.attention.reference import Attention, KvShape, MatmulAttention
from verifier_service.models.checkpoint import describe, load_config, windows
from verifier_service.models.compiled.attention import NativeAttention, supports
from verifier_service.models.compiled.forward import SUMS, NativeForward, fits_native
from verifier_service.models.compiled.ngrams import best_trees
from verifier_service.models.compiled.panels import PanelCaches
from verifier_service.models.compiled.sampling import best_argmax, best_choice, best_guesses
from verifier_service.models.compiled.weights import NativeWeights
from verifier_service.models.cuda_graphs import CudaGraphs, GraphedForward
from verifier_service.models.feature_model import FusedModel
from verifier_service.models.fusion import FeatureFusion, load_fusion
from verifier_service.models.paced import measured as with_pace
from verifier_service.models.paged import Forward, PagedModel, warm_up
from verifier_service.models.playback import PlaybackTarget, load_playback
from verifier_service.models.port import TargetModel
from verifier_service.models.quantization import quantizer
from verifier_service.models.transformers_forward import TransformersForward, kv_shape, load_model
from verifier_service.parallel.tensor_parallel import Leader, Meeting
from verifier_service.rules.grammars import Grammars, NoGrammars, TokenGrammars
from verifier_service.schedule.pricing import Priced
from verifier_service.targets.engine import VerifierEngine

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

log = logging.getLogger(__name__)


def prepare_threads(config: VerifierConfig) -> None:
    """Set the number of threads; in the thread that will compute: a library may keep it for each.

    Raise ConfigError where the device is not there.
    """
    torch.set_num_threads(config.threads)
    if config.numerics == "exact":
        # With AMX, oneDNN sums in an order that depends on the number of rows. It reads this once.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    if config.device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"device {config.device} is not available", param="device")


def load_engine(config: VerifierConfig, meeting: Meeting | None = None) -> VerifierEngine:
    """Return the engine, loaded and measured; call it in the thread that will run it.

    With meeting it is rank 0 of those that come there. Raise WeightsError or ConfigError.
    """
    prepare_threads(config)
    started = time.monotonic()
    model: PagedModel | Leader | PlaybackTarget
    if meeting is not None:
        meeting.join(config.device)
        model = Leader(load_target(config))
    elif config.tensor_parallel > 1:
        raise ConfigError("only a service starts ranks", param="tensor_parallel")
    elif config.recording is not None:
        model = load_playback(config)
    else:
        model = load_target(config)
    if model.info.block_length:
        raise ConfigError("a block-diffusion model is served by the denoiser", param="model")
    measured = numerics.measure(model)
    if config.numerics == "exact":
        numerics.require_exact(measured, dtype=config.dtype)
    warm_up(model, model.batches(min(config.row_budget, model.info.max_len)))
    model.info = dataclasses.replace(model.info, numerics=measured)
    log.info(
        "target %s ready in %.1f s: %s on %s, quantization %s, numerics %s%s",
        model.info.name,
        time.monotonic() - started,
        config.dtype,
        config.device,
        config.quantization,
        measured,
        "" if config.device != "cpu" or numerics.native_bf16() else " (no native bf16)",
    )
    kv = KvBlocks(
        model.pool,
        block_tokens=config.block_tokens,
        max_sessions=config.max_sessions,
        overcommit=config.kv_overcommit,
        share_factor=config.kv_share_factor,
    )
    choice = best_choice()
    target, costs = with_pace(model, config.pace, choice, config.row_budget)
    return VerifierEngine(
        target,
        kv,
        row_budget=config.row_budget,
        prefill_rows=config.prefill_rows,
        plain_round_s=config.plain_round_ms / 1000,
        argmax=best_argmax(),
        guesses=best_guesses(),
        trees=best_trees(),
        choice=choice,
        grammars=_grammars(config, model),
        pricing=Priced(costs),
    )


def _grammars(config: VerifierConfig, model: TargetModel) -> Grammars:
    """Return grammars over the model's tokenizer, if that lies beside it."""
    found = tokenizer_file(config.model)
    if found is None or not model.info.eos_token_ids:
        return NoGrammars()
    try:
        return TokenGrammars(found, model.info.vocab_size, model.info.eos_token_ids)
    except ValueError as error:
        # Everything but structured output works without.
        log.warning("no grammars: the tokenizer cannot be read for them: %s", error)
        return NoGrammars()


def shape_of(config: VerifierConfig) -> KvShape:
    """Return the shape of a rank's KV; raise ConfigError for what ranks cannot share."""
    ranks = config.tensor_parallel
    if config.features is not None and ranks > 1:
        raise ConfigError("a model on several ranks returns no features", param="features")
    device = torch.device(config.device)
    return kv_shape(load_config(config.model), _DTYPES[config.dtype], device, ranks)


def load_target(config: VerifierConfig) -> PagedModel:
    """Return the configured checkpoint, or this rank's shard of it; numerics are not measured yet.

    The fastest forward that fits the model is used: compiled, else transformers' own.
    """
    dtype, ranks = _DTYPES[config.dtype], config.tensor_parallel
    shape = shape_of(config)
    model = load_model(
        config.model,
        dtype=dtype,
        device=config.device,
        ranks=ranks,
        quantize=quantizer(config),
    )
    fusion = load_features(config, model)
    features = (fusion.hash, fusion.width) if fusion else ("", 0)
    info = describe(config, model.config, *features)
    # Compiled code knows no windows.
    seen = windows(model.config)
    # Each rank has a device of its own.
    shape = shape._replace(device=model.device)
    kernels = load_kernels()
    paged = partial(
        PagedModel if fusion is None else partial(FusedModel, fusion),
        shape=shape,
        info=info,
        kv_tokens=config.kv_tokens,
        block_tokens=config.block_tokens,
        prefix_cache_tokens=config.prefix_cache_tokens,
    )
    if (
        config.forward == "auto"
        and config.quantization == "none"
        and ranks == 1
        and not seen
        and config.attention in ("auto", "native")
        and kernels is not None
        and (isa := choose_isa(kernels, "bf16", config.isa)) is not None
        and fits_native(model, shape)
        and (fusion is None or max(fusion.layer_ids) < shape.layers - 1)
    ):
        log.info("forward compiled for %s", isa)
        weights = NativeWeights(model, shape.head_dim, isa)
        compiled = NativeForward(weights, kernels, isa, config.threads)
        info = dataclasses.replace(info, weights_hash=computed_by(info.weights_hash, SUMS))
        made = paged(compiled, PanelCaches(kernels, isa), info=info)
        # The compiled forward has threads of its own. Those of torch, which has only features left
        # to fuse, spin for milliseconds after each use, on the cores where the next draft is made.
        torch.set_num_threads(1)
        return made
    attention = choose_attention(config, shape, seen, info.max_len)
    log.info("forward of transformers, attention %s", attention.name)
    forward = TransformersForward(model, attention)
    return fitting(config, lambda: paged(recorded(config, forward, attention, info), attention))


def recorded(
    config: VerifierConfig,
    forward: TransformersForward,
    attention: Attention[Any],
    info: ModelInfo,
) -> Forward:
    """Return a forward that replays its small passes, where that is configured and can be had."""
    if (
        config.cuda_graphs == "off"
        or config.device == "cpu"
        or config.features is not None
        or config.tensor_parallel > 1
        or not isinstance(attention, FlexAttention)
    ):
        return forward
    return GraphedForward(
        forward, attention, CudaGraphs(), vocabulary=info.vocab_size, device=forward.device
    )


def fitting(config: VerifierConfig, make: Callable[[], PagedModel]) -> PagedModel:
    """Return the model that `make` makes; raise ConfigError where its KV does not fit."""
    try:
        return make()
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"a KV cache of {config.kv_tokens} tokens does not fit the memory that the weights "
            f"leave on {config.device}",
            param="kv_tokens",
        ) from None


def load_features(config: VerifierConfig, model: Any) -> FeatureFusion | None:
    """Return what fuses the model's hidden states, if that is configured."""
    return None if config.features is None else load_fusion(config.features.model, model)


def choose_attention(
    config: VerifierConfig, shape: KvShape, seen: Sequence[int | None], longest: int
) -> Attention[Any]:
    """Return the attention backend that the configuration asks for; seen is checkpoint.windows,
    longest how many tokens a text has at most.

    Raise ConfigError where the native one is asked for and cannot be had.
    """
    if config.attention == "flex" or (config.attention == "auto" and config.device != "cpu"):
        return flex(seen, longest, config.device)
    kernels = load_kernels() if config.attention != "matmul" and config.device == "cpu" else None
    if kernels is not None and not seen and supports(shape.head_dim, shape.dtype):
        return NativeAttention(kernels)
    if config.attention == "native":
        raise ConfigError(
            "the native attention was not built here, or does not fit the model",
            param="attention",
        )
    return MatmulAttention(seen)
