"""Weights of 8 or 4 bits: torchao's weight-only quantisation of a target as it is loaded.

Only the decoder's linear layers are quantised, not the embeddings and what makes logits. This saves
memory; whether it saves time is for torchao's kernels on the device to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from foredraft.errors import ConfigError
from verifier_service.config import VerifierConfig
from verifier_service.models.transformers_forward import skeleton

# How many weights of a row share a scale: what torchao's kernels take, the most frugal first.
_GROUPS = (128, 64, 32)
# torchao's int4 kernel for a CPU reads so many rows of a weight at once.
_CPU_ROWS = 16

# Quantises a transformers model in place.
Quantize = Callable[[Any], None]


def quantizer(config: VerifierConfig) -> Quantize:
    """Return what quantises the loaded target, which does nothing where that is not configured.

    Raise ConfigError, before any weight is read, where the target cannot be quantised so.
    """
    if config.quantization == "none":
        return lambda model: None
    if config.tensor_parallel > 1:
        raise _refused("a quantised model has one rank")
    if config.dtype == "fp16":
        # int8 weights are multiplied before they are scaled.
        raise _refused("sums over quantised weights leave the range of fp16: use bf16")
    if config.quantization == "int4" and config.dtype != "bf16" and config.device != "cpu":
        raise _refused("int4 on a GPU needs bf16")
    layers = _linears(skeleton(config.model).get_decoder())
    try:
        from torchao.quantization import quantize_

        method = _int8() if config.quantization == "int8" else _int4(layers, config.device)
    except ImportError as error:
        raise _refused(f"torchao is needed, pip install 'foredraft[quant]' ({error})") from None

    def quantize(model: Any) -> None:
        # Layer by layer on the device, which so never holds the whole model unquantised.
        quantize_(model.get_decoder(), method, device=config.device)

    return quantize


def _linears(decoder: torch.nn.Module) -> list[torch.nn.Linear]:
    """Return a decoder's linear layers; raise ConfigError where other layers hold matrices."""
    plain = (torch.nn.Linear, torch.nn.Embedding)
    for name, module in decoder.named_modules():
        matrices = (p for p in module.parameters(recurse=False) if p.ndim > 1)
        if not isinstance(module, plain) and any(True for _ in matrices):
            raise _refused(f"{name} is not a linear layer (a mixture of experts, for instance)")
    return [module for module in decoder.modules() if isinstance(module, torch.nn.Linear)]


def _int8() -> Any:
    """Return torchao's configuration for int8: one scale for each row of a weight."""
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig(set_inductor_config=False)


def _int4(layers: Sequence[torch.nn.Linear], device: str) -> Any:
    """Return torchao's configuration for int4; raise ConfigError where the layers do not fit it."""
    fitting = (g for g in _GROUPS if all(layer.in_features % g == 0 for layer in layers))
    group = next(fitting, None)
    if group is None:
        raise _refused(f"int4 needs layers whose inputs are a multiple of {_GROUPS[-1]}")
    if device == "cpu":
        if any(layer.out_features % _CPU_ROWS for layer in layers):
            raise _refused(f"int4 on a CPU needs outputs that are a multiple of {_CPU_ROWS}")
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        return PrototypeInt4WeightOnlyConfig(group, set_inductor_config=False)
    from torchao.quantization import Int4WeightOnlyConfig

    # The one layout whose kernel is torch's own.
    return Int4WeightOnlyConfig(
        group, set_inductor_config=False, int4_packing_format="tile_packed_to_4d"
    )


def _refused(reason: str) -> ConfigError:
    return ConfigError(reason, param="quantization")
