"""A Llama-shaped model's weights as the compiled forward reads them, packed once."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from foredraft_kernels.structs import COLUMNS, LINE, VerifierLayer, VerifierLinear, VerifierModel

_ALIGNMENT = 64


class Arena:
    """Arrays behind each other in one allocation: in huge pages, and in the order of reading."""

    def __init__(self, size: int) -> None:
        raw = np.empty(size + _ALIGNMENT, dtype=np.uint8)
        self._memory = raw[-raw.ctypes.data % _ALIGNMENT :]
        self._used = 0

    def put(self, tensor: torch.Tensor) -> int:
        """Copy a bf16 or fp32 tensor in and return its address, a multiple of 64."""
        contiguous = tensor.detach().contiguous()
        flat = contiguous.view(torch.uint8).reshape(-1).numpy()
        begin = self._used
        self._used = begin + -(-flat.size // _ALIGNMENT) * _ALIGNMENT
        assert self._used <= self._memory.size, "the arena is too small for the model"
        self._memory[begin : begin + flat.size] = flat
        return int(self._memory.ctypes.data) + begin


def pack(arena: Arena, weight: torch.Tensor, bias: torch.Tensor | None = None) -> VerifierLinear:
    """Return bf16 weight [out, in] and bias [out] packed; out is filled with zeros up to COLUMNS.

    Raise ValueError where in is not a multiple of LINE.
    """
    out, width = weight.shape
    if width % LINE:
        raise ValueError(f"a linear layer of {width} inputs cannot be packed")
    filler = -out % COLUMNS
    filled = torch.nn.functional.pad(weight.detach(), (0, 0, 0, filler))
    panels = filled.view(-1, COLUMNS, width // 2, 2).transpose(1, 2)
    at = arena.put(panels)
    biases = None if bias is None else arena.put(torch.nn.functional.pad(bias, (0, filler)).float())
    return VerifierLinear(at, biases, width, out + filler)


class NativeWeights:
    """The packed weights of a transformers Llama-shaped model, whose layers lose their own.

    `address` is that of C's model, valid as long as this lives.
    """

    def __init__(self, model: Any, head_dim: int) -> None:
        base, config = model.model, model.config
        numbers = sum(p.numel() for p in model.parameters()) + model.lm_head.weight.numel()
        self._embedding = base.embed_tokens.weight.detach().contiguous()
        cos, sin = _rotary_tables(base)
        # Room to spare: pages that are not touched take no memory.
        arena = self._arena = Arena(2 * numbers + 8 * cos.numel() + (4 << 20))
        self._layers = (VerifierLayer * len(base.layers))()
        for to, layer in zip(self._layers, base.layers, strict=True):
            _pack_layer(arena, to, layer)
            layer.to("meta")
        self.vocabulary, self.hidden = self._embedding.shape
        self.positions = cos.shape[0]
        # The layers after which each row still has a state.
        self.inner = range(len(base.layers) - 1)
        self._struct = VerifierModel(
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            num_layers=len(base.layers),
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            eps=base.norm.variance_epsilon,
            scale=head_dim**-0.5,
            layers=self._layers,
            head=pack(arena, model.lm_head.weight),
            embedding=self._embedding.data_ptr(),
            cos=arena.put(cos),
            sin=arena.put(sin),
            norm=arena.put(base.norm.weight.float()),
        )
        self.columns = int(self._struct.head.out)
        self.address = ctypes.addressof(self._struct)


def _pack_layer(arena: Arena, to: VerifierLayer, layer: Any) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    to.attention_norm = arena.put(layer.input_layernorm.weight.float())
    to.qkv = pack(arena, *_side_by_side(attention.q_proj, attention.k_proj, attention.v_proj))
    to.out = pack(arena, *_side_by_side(attention.o_proj))
    to.mlp_norm = arena.put(layer.post_attention_layernorm.weight.float())
    weight, bias = _side_by_side(mlp.gate_proj, mlp.up_proj)
    to.gate_up = pack(arena, _interleaved(weight), None if bias is None else _interleaved(bias))
    to.down = pack(arena, *_side_by_side(mlp.down_proj))


def _side_by_side(*layers: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the weight and bias of linear layers of one input, their outputs side by side."""
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers))
    return torch.cat([x.weight.detach() for x in layers]), torch.cat(biases) if biases else None


def _interleaved(gate_up: torch.Tensor) -> torch.Tensor:
    """Reorder [2 inner, ...] so that a panel's columns are half of the gate, then what it gates."""
    halves = gate_up.view(2, -1, COLUMNS // 2, *gate_up.shape[1:])
    return halves.transpose(0, 1).reshape_as(gate_up)


def _rotary_tables(base: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin as the model itself computes and rounds them: fp32 [positions, D / 2]."""
    positions = torch.arange(base.config.max_position_embeddings)[None]
    like = torch.empty(0, dtype=base.embed_tokens.weight.dtype)
    cos, sin = base.rotary_emb(like, positions)
    half = cos.shape[-1] // 2
    return cos[0, :, :half].float().contiguous(), sin[0, :, :half].float().contiguous()
