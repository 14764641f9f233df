"""Any transformers causal LM as a forward over flat batches.

All rows go through the model as one sequence [1, rows] with explicit positions, and attention, the
only place where rows meet, is replaced by ours through transformers' attention registry (as vLLM's
transformers backend does): it keeps each session's KV and looks at that session alone.

A library prepares its kernels anew for each number of rows it meets (oneDNN: 5 ms and 2 MB for a
small model), so batches are filled up to one of a few sizes, which are warmed up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from foredraft.decoding.tree import depths
from foredraft.errors import ConfigError, WeightsError
from foredraft.model_files import verify_files
from verifier_service.models.attention.reference import Attention, KvShape, Rows
from verifier_service.models.checkpoint import load_config
from verifier_service.models.fusion import FeatureFusion
from verifier_service.models.onednn_linear import pack_linears, packs
from verifier_service.models.paged import Flat

if TYPE_CHECKING:
    import numpy.typing as npt

# A library may compute a few rows on another path than many; from these numbers on, rows keep
# their bits, as far as was measured (bf16), and are not known to differ (fp32). In fp16 no number
# was found to help.
_LEAST_ROWS = {torch.bfloat16: 2, torch.float16: 1, torch.float32: 4}


def _registered_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    foredraft: tuple[Attention[Any], Any],
    s_aux: torch.Tensor | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: q [1, heads, rows, D] -> [1, rows, heads, D].

    The backend knows the layers' windows by itself.
    """
    if s_aux is not None or softcap is not None:
        kind = "sinks" if s_aux is not None else "soft-capped logits"
        raise WeightsError(f"attention with {kind} is not supported")
    backend, plan = foredraft
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return backend.attend(layer, query[0], key[0], value[0], plan, scale)[None], None


AttentionInterface.register("foredraft", _registered_attention)


def filled(rows: int, least: int = 1) -> int:
    """Return the size of the batch that holds rows: exact while rounds are small, then coarser."""
    for limit, step in ((20, 1), (64, 8), (256, 32)):
        if rows <= limit:
            return max(least, -(-rows // step) * step)
    return -(-rows // 64) * 64


class TransformersForward:
    """A loaded transformers model; attention is ours, the rest is as its authors wrote it.

    Batches are filled up with rows that belong to no session and are not looked at.
    """

    def __init__(self, model: Any, attention: Attention[Any]) -> None:
        if packs(model.dtype, model.device) and model.tp_size is None:
            pack_linears(model)
        self._model = model
        self.attention = attention
        self._least_rows = _LEAST_ROWS[model.dtype]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        found: torch.device = self._model.device
        return found

    @torch.inference_mode()
    def __call__(self, flat: Flat) -> npt.NDArray[np.float32]:
        return on_host(self.logits(flat))

    @torch.inference_mode()
    def logits(self, flat: Flat) -> torch.Tensor:
        """Return the wanted rows' logits on the model's device: float32."""
        return self._logits(flat, self._run(flat))

    @torch.inference_mode()
    def fused(
        self, flat: Flat, rows: Sequence[int], fusion: FeatureFusion
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return logits, and a fusion's features of some rows: bfloat16's bits [rows, width]."""
        # transformers counts the embeddings' output as 0, and norms the last layer's.
        outputs = [layer + 1 for layer in fusion.layer_ids]
        ran = self._run(flat, output_hidden_states=outputs)
        read = [*rows, *[0] * (filled(len(rows), self._least_rows) - len(rows))]
        states = torch.cat([ran.hidden_states[layer][0, read] for layer in outputs], dim=-1)
        features = fusion(states)[: len(rows)].to(torch.bfloat16)
        logits = on_host(self._logits(flat, ran))
        return logits, features.view(torch.int16).cpu().numpy().view(np.uint16)

    def _run(self, flat: Flat, **asked: Any) -> Any:
        """Return transformers' output, asked for more than logits where that is wanted."""
        device, least = self._model.device, self._least_rows
        rows = filled(len(flat.tokens), least)
        filler = [0] * (rows - len(flat.tokens))
        wanted = len(flat.wanted)
        looked_at = flat.wanted + [0] * (filled(max(wanted, 1), least) - wanted)
        return self.compute(
            torch.tensor([flat.tokens + filler], device=device),
            torch.tensor([positions(flat.batch) + filler], device=device),
            torch.tensor(looked_at, device=device),
            self.attention.plan(flat.batch, rows),
            **asked,
        )

    def compute(
        self,
        tokens: torch.Tensor,
        places: torch.Tensor,
        wanted: torch.Tensor,
        plan: Any,
        **asked: Any,
    ) -> Any:
        """Return transformers' output for tokens and positions [1, rows] on the model's device.

        Its logits are [1, len(wanted), vocabulary]; plan is the attention's for this pass.
        """
        return self._model(
            input_ids=tokens,
            position_ids=places,
            use_cache=False,
            logits_to_keep=wanted,
            foredraft=(self.attention, plan),
            **asked,
        )

    def _logits(self, flat: Flat, ran: Any) -> torch.Tensor:
        logits: torch.Tensor = ran.logits[0, : len(flat.wanted)]
        return logits.float()

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return a pass of every size, up to `rows`, that passes are filled up to."""
        sizes = sorted({min(filled(n), rows) for n in range(1, rows + 1)})
        return [*([size] for size in sizes), *self.attention.batches(rows)]


def on_host(values: torch.Tensor) -> npt.NDArray[np.float32]:
    """Return a copy of float32 values of a device; of a GPU's in page-locked memory.

    Such memory is what a GPU writes at its full rate; torch keeps it for the next call.
    """
    copied = torch.empty(values.shape, dtype=torch.float32, pin_memory=values.is_cuda)
    return copied.copy_(values).numpy()


def positions(batch: Sequence[Rows]) -> list[int]:
    """Return where each row of a batch stands in its session's text, tree nodes by their depth."""
    found: list[int] = []
    for _, _, start, _, rows, parents, _, given in batch:
        if given:
            found.extend(given)
            continue
        root = start + rows - len(parents)
        found.extend(range(start, root))
        found.extend(root - 1 + depth for depth in depths(parents))
    return found


def kv_shape(config: Any, dtype: torch.dtype, device: torch.device, ranks: int = 1) -> KvShape:
    """Return what a KV cache of the configured model is made of, on each of some ranks.

    Raise ConfigError where the ranks cannot share its heads.
    """
    text = config.get_text_config()
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    if kv_heads % ranks:
        raise ConfigError(
            f"{ranks} ranks cannot share {kv_heads} KV heads", param="tensor_parallel"
        )
    return KvShape(
        layers=text.num_hidden_layers,
        kv_heads=kv_heads // ranks,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        dtype=dtype,
        device=device,
    )


def skeleton(path: Path) -> Any:
    """Return the transformers model that a directory configures, without any weights.

    Raise WeightsError if there is none.
    """
    config = load_config(path)
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ValueError, RuntimeError) as error:
        raise WeightsError(f"the model cannot be loaded: {error}") from None


def load_model(
    path: Path,
    *,
    dtype: torch.dtype,
    device: str,
    ranks: int = 1,
    quantize: Callable[[Any], None],
) -> Any:
    """Return the checkpoint in a directory as a transformers model whose attention is ours.

    Of several ranks, which must have met, each reads its own shard; quantize changes the model in
    place before it goes to the device. Local safetensors only, no code from the checkpoint. Raise
    WeightsError if it cannot be used.
    """
    verify_files(path)
    config = load_config(path)
    sharded = {"distributed_config": DistributedConfig(tp_size=ranks)} if ranks > 1 else {}
    # A service's log is no place for progress bars.
    disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=dtype,
            attn_implementation="foredraft",
            **sharded,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"the model cannot be loaded: {error}") from None
    quantize(model)
    if ranks == 1:
        model = model.to(torch.device(device))
    return model.eval().requires_grad_(False)
