"""Any transformers causal LM directory as a TargetModel.

All rows of all segments go through the model as one sequence [1, rows] with explicit positions,
and attention, the only place where rows meet, is replaced by ours through transformers' attention
registry (as vLLM's transformers backend does): it keeps each session's KV and looks at that session
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from foredraft.errors import WeightsError
from foredraft.types import ModelInfo
from verifier_service.model.attention import Attention, Kv, KvShape, Rows
from verifier_service.model.checkpoint import (
    load_config,
    longest_text,
    tokenizer_hash,
    verify_manifest,
)
from verifier_service.model.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# A library may compute a lone row on another path than several; the least row counts from which
# rows keep their bits, as measured (bf16) and known to differ below (fp32).
_LEAST_ROWS = {torch.bfloat16: 2, torch.float32: 4}


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


class HfTargetModel:
    """A loaded checkpoint with a KV cache in slots."""

    def __init__(self, model: Any, attention: Attention, info: ModelInfo) -> None:
        self._model: Any = model
        self._attention = attention
        self.info = info
        config = model.config.get_text_config()
        heads = config.num_attention_heads
        self._shape = KvShape(
            layers=config.num_hidden_layers,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=model.dtype,
            device=model.device,
        )
        self._least_rows = _LEAST_ROWS.get(model.dtype, 1)
        self._slots: dict[int, Kv] = {}
        self._names = itertools.count()

    @property
    def module(self) -> Any:
        """The transformers model."""
        return self._model

    def alloc(self, capacity: int) -> int:
        slot = next(self._names)
        self._slots[slot] = self._attention.alloc(self._shape, capacity)
        return slot

    def free(self, slot: int) -> None:
        del self._slots[slot]

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        batch = []
        for slot, start, segment_tokens, trailing in segments:
            first, count = len(tokens), len(segment_tokens)
            tokens.extend(segment_tokens)
            positions.extend(range(start, start + count))
            wanted.extend(range(first + count - trailing, first + count))
            batch.append(Rows(self._slots[slot], start, first, count))
        # Filler rows belong to no session: their attention is zero and nobody reads them.
        filler = self._least_rows - len(tokens)
        tokens.extend([tokens[0]] * filler)
        positions.extend([0] * filler)
        head_rows = wanted + [0] * (self._least_rows - len(wanted))
        device = self._shape.device
        logits = self._model(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(head_rows, device=device),
            foredraft=(self._attention, batch),
        ).logits
        result: npt.NDArray[np.float32] = logits[0, : len(wanted)].float().cpu().numpy()
        return result


def load(path: Path, *, dtype: torch.dtype, device: str, attention: Attention) -> HfTargetModel:
    """Return the checkpoint in a directory; raise WeightsError if it cannot be used as it is."""
    verify_manifest(path)
    config = load_config(path)
    max_len = longest_text(config)
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
    info = ModelInfo(
        vocab_size=config.get_text_config().vocab_size,
        max_len=max_len,
        tokenizer_hash=tokenizer_hash(path),
        numerics="unmeasured",
        name=path.name,
    )
    return HfTargetModel(
        model.to(torch.device(device)).eval().requires_grad_(False), attention, info
    )
