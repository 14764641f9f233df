"""A drafter's weights as the compiled forward reads them, packed once at load."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from drafter_service.models.embedded.block_causal import (
    BlockCausalConfig,
    BlockCausalDLM,
    BlockCausalLayer,
)
from foredraft_kernels.memory import Arena, gate_interleaved
from foredraft_kernels.structs import (
    BYTES,
    COLUMNS,
    DRAFTER_MAX_HEAD_DIM,
    MAX_CANDIDATES,
    MAX_EDGE_RANK,
    DrafterLayer,
    DrafterLinear,
    DrafterModel,
)

# Above it a sum of products of bytes may not fit in int32.
_MAX_WIDTH = 65_536


def supports(config: BlockCausalConfig, candidates: int) -> bool:
    """Return whether the compiled forward takes a model of these sizes."""
    return (
        config.hidden_size % BYTES == 0
        and config.intermediate_size % BYTES == 0
        and config.num_scored % BYTES == 0
        and config.head_dim % COLUMNS == 0
        and config.head_dim <= DRAFTER_MAX_HEAD_DIM
        and max(config.hidden_size, config.intermediate_size) <= _MAX_WIDTH
        and config.edge_rank <= MAX_EDGE_RANK
        and candidates <= MAX_CANDIDATES
    )


class PackedModel:
    """A model's weights in C's layout; `struct` is valid as long as this lives.

    The caches that it describes hold `slots` sessions of `capacity` tokens, a multiple of 32.
    Raises ValueError for weights that are not finite.
    """

    def __init__(self, model: BlockCausalDLM, candidates: int, slots: int, capacity: int) -> None:
        config = model.config
        if not all(bool(p.isfinite().all()) for p in model.parameters()):
            raise ValueError("weights that are not finite")
        # Padded with zeros: what they add to a score is zero.
        rank = -(-config.edge_rank // COLUMNS) * COLUMNS
        padding = rank - config.edge_rank
        # Room to spare: untouched pages take no memory. Embedding and head are both there.
        numbers = sum(p.numel() for p in model.parameters()) + model.embedding.weight.numel()
        numbers += 2 * model.cos.numel() + 3 * model.mask_slots.numel()
        numbers += padding * (2 * config.num_scored + 1 + config.hidden_size) + config.vocab_size
        self._arena = arena = Arena(4 * numbers + (1 << 20))
        self._layers = (DrafterLayer * config.num_layers)()
        layers = [_layer(module) for module in model.layers]
        for to, layer in zip(self._layers, layers, strict=True):
            to.qkv = _linear(arena, layer.qkv.weight * layer.attention_norm.weight)
            to.out = _linear(arena, layer.out.weight)
            gate_up = layer.gate_up.weight * layer.mlp_norm.weight
            to.gate_up = _linear(arena, gate_interleaved(gate_up))
            to.down = _linear(arena, layer.down.weight)
        gate = torch.nn.functional.pad(model.edge_gate.weight, (0, 0, 0, padding))
        half = config.head_dim // 2
        mask = int(model.row_of[config.mask_token_id])
        listed = bool(config.shortlist_size)
        first = layers[0]
        mask_qkv = first.qkv(first.attention_norm(model.mask_slots))
        self.struct = DrafterModel(
            scored=config.num_scored,
            hidden=config.hidden_size,
            heads=config.num_heads,
            head_dim=config.head_dim,
            inner=config.intermediate_size,
            num_layers=config.num_layers,
            rank=rank,
            eos=int(model.row_of[config.eos_token_id]),
            mask=mask if mask < config.num_scored else -1,
            candidates=candidates,
            slots=slots,
            capacity=capacity,
            layers=self._layers,
            head=_linear(arena, model.head_weight * model.norm.weight),
            edge_gate=_linear(arena, gate * model.norm.weight),
            token_ids=arena.put(_int32(model.token_ids)) if listed else None,
            row_of=arena.put(_int32(model.row_of)) if listed else None,
            embedding=arena.put(_floats(model.embedding.weight)),
            mask_slots=arena.put(_floats(model.mask_slots)),
            mask_qkv=None if config.anchored else arena.put(_floats(mask_qkv)),
            cos=arena.put(_floats(model.cos[:, :half])),
            sin=arena.put(_floats(model.sin[:, :half])),
            edge_bias=arena.put(np.pad(_floats(model.edge_gate.bias), (0, padding))),
            edge_previous=arena.put(_bf16(model.edge_previous.weight, padding)),
            edge_next=arena.put(_bf16(model.edge_next.weight, padding)),
            eps=config.rms_eps,
        )
        self.address = ctypes.addressof(self.struct)


def _layer(module: torch.nn.Module) -> BlockCausalLayer:
    assert isinstance(module, BlockCausalLayer)
    return module


def _linear(arena: Arena, weight: Tensor) -> DrafterLinear:
    """Quantise weight [out, in] per output channel; [out / 32][in / 4][32 channels][4 bytes]."""
    values = _floats(weight)
    out, width = values.shape
    scales = np.maximum(np.abs(values).max(axis=1), 1e-30) / np.float32(127)
    # The unsigned operand of the CPU's instruction: the activations' sums take the 128 off again.
    codes = (np.rint(values / scales[:, None]) + 128).astype(np.uint8)
    tiles = codes.reshape(out // COLUMNS, COLUMNS, width // 4, 4).transpose(0, 2, 1, 3)
    return DrafterLinear(arena.put(tiles), arena.put(scales), width, out)


def _floats(tensor: Tensor) -> npt.NDArray[np.float32]:
    return tensor.detach().float().numpy()


def _int32(tensor: Tensor) -> npt.NDArray[np.int32]:
    return tensor.int().numpy()


def _bf16(table: Tensor, padding: int) -> npt.NDArray[np.int16]:
    padded = torch.nn.functional.pad(table.detach(), (0, padding))
    return padded.to(torch.bfloat16).view(torch.int16).numpy()
