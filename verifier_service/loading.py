"""From a configuration to a running engine: threads, weights, attention, measured numerics."""

from __future__ import annotations

import dataclasses
import logging
import time

import torch

from foredraft.errors import ConfigError
from verifier_service import numerics
from verifier_service.config import VerifierConfig
from verifier_service.core.kv_blocks import KvBlocks
from verifier_service.engine import VerifierEngine
from verifier_service.model import hf
from verifier_service.model.attention import Attention, MatmulAttention

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

log = logging.getLogger(__name__)


def load_engine(config: VerifierConfig) -> VerifierEngine:
    """Return the engine, loaded and measured; call it in the thread that will run it.

    Raise WeightsError or ConfigError. (Threads are set here because a library may keep their
    number per thread.)
    """
    torch.set_num_threads(config.threads)
    if config.device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"device {config.device} is not available", param="device")
    started = time.monotonic()
    attention = choose_attention(config)
    model = hf.load(
        config.model, dtype=_DTYPES[config.dtype], device=config.device, attention=attention
    )
    measured = numerics.measure(model)
    if config.numerics == "exact":
        numerics.require_exact(measured, dtype=config.dtype)
    model.info = dataclasses.replace(
        model.info, numerics=measured, name=config.name or model.info.name
    )
    log.info(
        "target %s ready in %.1f s: %s on %s, attention %s, numerics %s%s",
        model.info.name,
        time.monotonic() - started,
        config.dtype,
        config.device,
        attention.name,
        measured,
        "" if config.device != "cpu" or numerics.native_bf16() else " (no native bf16)",
    )
    kv = KvBlocks(
        kv_tokens=config.kv_tokens,
        block_tokens=config.block_tokens,
        max_sessions=config.max_sessions,
    )
    return VerifierEngine(model, kv, row_budget=config.row_budget, prefill_rows=config.prefill_rows)


def choose_attention(config: VerifierConfig) -> Attention:
    """Return the attention backend that the configuration asks for."""
    return MatmulAttention()
