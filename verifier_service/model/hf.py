"""Any transformers causal LM as a forward over flat batches.

All rows go through the model as one sequence [1, rows] with explicit positions, and attention, the
only place where rows meet, is replaced by ours through transformers' attention registry (as vLLM's
transformers backend does): it keeps each session's KV and looks at that session alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from foredraft.errors import WeightsError
from foredraft.model_files import verify_files
from verifier_service.model.attention import Attention, KvShape, Rows
from verifier_service.model.checkpoint import load_config
from verifier_service.model.packed import pack_linears, packs
from verifier_service.model.slots import Flat


def _registered_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    foredraft: tuple[Attention, Sequence[Rows]],
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: q [1, heads, rows, D] -> [1, rows, heads, D]."""
    backend, batch = foredraft
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return backend.attend(layer, query[0], key[0], value[0], batch, scale)[None], None


AttentionInterface.register("foredraft", _registered_attention)


class TransformersForward:
    """A loaded transformers model; attention is ours, the rest is as its authors wrote it."""

    def __init__(self, model: Any, attention: Attention) -> None:
        if packs(model.dtype, model.device):
            pack_linears(model)
        self._model = model
        self._attention = attention

    def __call__(self, flat: Flat) -> torch.Tensor:
        device = self._model.device
        logits: torch.Tensor = self._model(
            input_ids=torch.tensor([flat.tokens], device=device),
            position_ids=torch.tensor([flat.positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(flat.wanted, device=device),
            foredraft=(self._attention, flat.batch),
        ).logits
        return logits[0]


def kv_shape(config: Any, dtype: torch.dtype, device: torch.device) -> KvShape:
    """Return what a KV cache of the configured model is made of."""
    text = config.get_text_config()
    heads = text.num_attention_heads
    return KvShape(
        layers=text.num_hidden_layers,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        dtype=dtype,
        device=device,
    )


def load_model(path: Path, *, dtype: torch.dtype, device: str) -> Any:
    """Return the checkpoint in a directory as a transformers model whose attention is ours.

    Local safetensors only, no code from the checkpoint. Raise WeightsError if it cannot be used.
    """
    verify_files(path)
    config = load_config(path)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=dtype,
            attn_implementation="foredraft",
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"the model cannot be loaded: {error}") from None
    return model.to(torch.device(device)).eval().requires_grad_(False)
