"""The Llama family without the overhead: the same arithmetic in a quarter of the operations.

A forward of a small model on a CPU is bound by its weights' way through memory and by the cost of
calling operations. So query, key and value are one product, as are gate and up; weights are
packed once (packed.py); what lies between the products is compiled (attention_native.c) and rounds
where transformers rounds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from verifier_service.model.attention import KvShape
from verifier_service.model.attention_native import NativeAttention
from verifier_service.model.native import library
from verifier_service.model.packed import PackedLinear, packs
from verifier_service.model.slots import Flat

_LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer")
_LANES = 16


# A packed linear layer's forward: a bare call, without the module's hooks.
_Product = Callable[[torch.Tensor], torch.Tensor]


def _product(*layers: Any) -> _Product:
    return PackedLinear(*layers).forward


class _Norm(NamedTuple):
    weight: torch.Tensor
    eps: float


class _Layer(NamedTuple):
    before_attention: _Norm
    qkv: _Product
    out: _Product
    before_mlp: _Norm
    gate_up: _Product
    down: _Product


class FusedForward:
    """A decoder of the Llama family in bf16 on a CPU; make it with `fuse`."""

    def __init__(
        self, model: Any, attention: NativeAttention, kernels: ctypes.CDLL, shape: KvShape
    ) -> None:
        base = model.model
        self._attention = attention
        self._kernels = kernels
        self._heads = base.config.num_attention_heads
        self._shape = shape
        self._embedding = base.embed_tokens.weight.detach()
        self._rotary = _rotary_tables(base)
        self._layers = [_packed(layer) for layer in base.layers]
        self._norm = _Norm(base.norm.weight.detach(), base.norm.variance_epsilon)
        self._head = _product(model.lm_head)

    def __call__(self, flat: Flat) -> torch.Tensor:
        x = self._embedding.index_select(0, torch.tensor(flat.tokens))
        heads, (kv_heads, head_dim) = self._heads, self._shape[1:3]
        prepared = self._attention.prepare(
            flat.batch,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            dtype=x.dtype,
            scale=head_dim**-0.5,
            rotary=self._rotary,
        )
        normed = torch.empty_like(x)
        mixed = x.new_zeros(len(flat.tokens), heads * head_dim)
        out = mixed.view(-1, heads, head_dim)
        delta = None
        for index, layer in enumerate(self._layers):
            self._add_norm(x, delta, layer.before_attention, normed)
            qkv = layer.qkv(normed).view(-1, heads + 2 * kv_heads, head_dim).transpose(0, 1)
            q, k, v = qkv.split((heads, kv_heads, kv_heads))
            self._attention.run(prepared, index, q, k, v, out)
            self._add_norm(x, layer.out(mixed), layer.before_mlp, normed)
            delta = layer.down(self._gated(layer.gate_up(normed)))
        self._add_norm(x, delta, self._norm, normed)
        return self._head(normed.index_select(0, torch.tensor(flat.wanted)))

    def _add_norm(
        self, x: torch.Tensor, delta: torch.Tensor | None, norm: _Norm, out: torch.Tensor
    ) -> None:
        """x += delta; out = RMS norm of x."""
        rows, width = x.shape
        self._kernels.fd_norm(
            x.data_ptr(),
            None if delta is None else delta.data_ptr(),
            norm.weight.data_ptr(),
            out.data_ptr(),
            rows,
            width,
            norm.eps,
        )

    def _gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Return silu(gate) * up."""
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(rows, width)
        self._kernels.fd_gate(gate_up.data_ptr(), out.data_ptr(), rows, width)
        return out


def fuse(model: Any, attention: Any, shape: KvShape) -> FusedForward | None:
    """Return the fused forward of a transformers model, or None where it is of another kind."""
    kernels = library()
    if kernels is None or not isinstance(attention, NativeAttention):
        return None
    config = model.config
    base = getattr(model, "model", None)
    kinds = {type(layer).__name__ for layer in getattr(base, "layers", [])}
    sizes = (config.hidden_size, getattr(config, "intermediate_size", 1))
    fits = (
        len(kinds) == 1
        and kinds <= set(_LAYERS)
        and packs(shape.dtype, shape.device)
        and config.hidden_act == "silu"
        and not any(size % _LANES for size in sizes)
    )
    return FusedForward(model, attention, kernels, shape) if fits else None


def _packed(layer: Any) -> _Layer:
    """Return one decoder layer with its products packed, and drop its own copy of the weights."""
    attention, mlp = layer.self_attn, layer.mlp
    packed = _Layer(
        _Norm(layer.input_layernorm.weight.detach(), layer.input_layernorm.variance_epsilon),
        _product(attention.q_proj, attention.k_proj, attention.v_proj),
        _product(attention.o_proj),
        _Norm(
            layer.post_attention_layernorm.weight.detach(),
            layer.post_attention_layernorm.variance_epsilon,
        ),
        _product(mlp.gate_proj, mlp.up_proj),
        _product(mlp.down_proj),
    )
    layer.to("meta")
    return packed


def _rotary_tables(base: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin as the model itself computes and rounds them: fp32 [positions, D / 2]."""
    positions = torch.arange(base.config.max_position_embeddings)[None]
    like = torch.empty(0, dtype=base.embed_tokens.weight.dtype)
    cos, sin = base.rotary_emb(like, positions)
    half = cos.shape[-1] // 2
    return cos[0, :, :half].float().contiguous(), sin[0, :, :half].float().contiguous()
