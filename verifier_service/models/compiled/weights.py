"""A Llama-shaped model's weights as the compiled forward reads them, packed once."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from foredraft_kernels.memory import Arena, gate_interleaved, in_lines
from foredraft_kernels.structs import COLUMNS, LINE, VerifierLayer, VerifierLinear, VerifierModel


def pack(
    arena: Arena, isa: str, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> VerifierLinear:
    """Return bf16 weight [out, in] and bias [out] packed; out is filled with zeros up to COLUMNS.

    Raise ValueError where in is not a multiple of LINE.
    """
    out, width = weight.shape
    if width % LINE:
        raise ValueError(f"a linear layer of {width} inputs cannot be packed")
    filler = -out % COLUMNS
    filled = torch.nn.functional.pad(in_lines(weight.detach(), isa), (0, 0, 0, filler))
    panels = filled.view(-1, COLUMNS, width // 2, 2).transpose(1, 2)
    at = arena.put(panels.view(torch.int16).numpy())
    biases = None if bias is None else arena.put(_fp32(torch.nn.functional.pad(bias, (0, filler))))
    return VerifierLinear(at, biases, width, out + filler)


class NativeWeights:
    """A transformers Llama-shaped model's weights, packed for an ISA; its layers lose their own.

    `address` is that of C's model, valid as long as this lives.
    """

    def __init__(self, model: Any, head_dim: int, isa: str) -> None:
        base, config = model.model, model.config
        numbers = sum(p.numel() for p in model.parameters()) + model.lm_head.weight.numel()
        self._embedding = base.embed_tokens.weight.detach().contiguous()
        cos, sin = _rotary_tables(base)
        # Room to spare: pages that are not touched take no memory.
        arena = self._arena = Arena(2 * numbers + 8 * cos.numel() + (4 << 20))
        self._layers = (VerifierLayer * len(base.layers))()
        for to, layer in zip(self._layers, base.layers, strict=True):
            _pack_layer(arena, isa, to, layer)
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
            head=pack(arena, isa, model.lm_head.weight),
            embedding=self._embedding.data_ptr(),
            cos=arena.put(_fp32(cos)),
            sin=arena.put(_fp32(sin)),
            norm=arena.put(_fp32(base.norm.weight)),
        )
        self.columns = int(self._struct.head.out)
        self.address = ctypes.addressof(self._struct)


def _pack_layer(arena: Arena, isa: str, to: VerifierLayer, layer: Any) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    to.attention_norm = arena.put(_fp32(layer.input_layernorm.weight))
    to.qkv = pack(arena, isa, *_side_by_side(attention.q_proj, attention.k_proj, attention.v_proj))
    to.out = pack(arena, isa, *_side_by_side(attention.o_proj))
    to.mlp_norm = arena.put(_fp32(layer.post_attention_layernorm.weight))
    weight, bias = _side_by_side(mlp.gate_proj, mlp.up_proj)
    mixed = None if bias is None else gate_interleaved(bias)
    to.gate_up = pack(arena, isa, gate_interleaved(weight), mixed)
    to.down = pack(arena, isa, *_side_by_side(mlp.down_proj))


def _side_by_side(*layers: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the weight and bias of linear layers of one input, their outputs side by side."""
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers))
    return torch.cat([x.weight.detach() for x in layers]), torch.cat(biases) if biases else None


def _rotary_tables(base: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin as the model itself computes and rounds them: fp32 [positions, D / 2]."""
    positions = torch.arange(base.config.max_position_embeddings)[None]
    like = torch.empty(0, dtype=base.embed_tokens.weight.dtype)
    cos, sin = base.rotary_emb(like, positions)
    half = cos.shape[-1] // 2
    return cos[0, :, :half], sin[0, :, :half]


def _fp32(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    return tensor.detach().float().numpy()
