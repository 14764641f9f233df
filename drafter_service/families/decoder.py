"""The decoder that most diffusion LMs are: Llama's and Qwen's layers under a mask of our own.

Weights have transformers' names for Llama, Qwen2 and Qwen3. Rows of several texts go through one
forward; what a row may see is told by the mask, so one module serves causal, block-causal and fully
bidirectional families.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes, and what differs between the checkpoints' architectures.

    qkv_bias: biases on query, key and value (Qwen2); qk_norm: norms on query and key heads (Qwen3);
    tied: the head is the embedding.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_eps: float
    max_len: int
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        c, bias = config, config.qkv_bias
        self.head_dim = c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=False)
        if c.qk_norm:
            self.q_norm = nn.RMSNorm(c.head_dim, c.rms_eps)
            self.k_norm = nn.RMSNorm(c.head_dim, c.rms_eps)
        self.qk_norm = c.qk_norm

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """Return the mixed rows of x [n, hidden]; visible [n, n] says which rows each row sees."""
        q, k, v = (
            part(x).view(len(x), -1, self.head_dim)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (each.transpose(0, 1) for each in (rotated(q, cos, sin), rotated(k, cos, sin), v))
        mixed = F.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=visible, enable_gqa=True
        )
        mixed = mixed[0].transpose(0, 1).reshape(len(x), -1)
        out: Tensor = self.o_proj(mixed)
        return out


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of x [n, hidden] transformed."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Attention and MLP, each behind its norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """Return the layer's output for rows x [n, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, visible)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """Embedding, layers, norm and head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        """Return the normed states [n, hidden] of rows with tokens and positions [n]."""
        cos, sin = rotary(self.config, positions, self.embed_tokens.weight.dtype)
        x: Tensor = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, visible)
        normed: Tensor = self.norm(x)
        return normed

    @classmethod
    def of(cls, config: DecoderConfig, weights: Mapping[str, Tensor]) -> Decoder:
        """Return a decoder over the weights; raise ValueError for missing, unknown or misshapen."""
        with torch.device("meta"):
            model = cls(config)
        given = dict(weights)
        if config.tied:
            given["lm_head.weight"] = given.get("embed_tokens.weight", torch.empty(0))
        return assigned(model, given)


def assigned(model: M, given: Mapping[str, Tensor]) -> M:
    """Return a model with the weights given; raise ValueError for missing, unknown or misshapen."""
    expected = model.state_dict()
    missing, unknown = sorted(expected.keys() - given), sorted(given.keys() - expected)
    if missing or unknown:
        raise ValueError(f"missing weights {missing[:3]}, unknown weights {unknown[:3]}")
    for name, tensor in given.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} is {list(tensor.shape)}, not {list(expected[name].shape)}")
    model.load_state_dict(given, assign=True)
    return model.requires_grad_(False).eval()


def rotary(config: DecoderConfig, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [n, 1, head_dim], computed in fp32 as transformers does."""
    even = torch.arange(0, config.head_dim, 2, device=positions.device).float()
    angles = positions.float()[:, None] / config.rope_theta ** (even / config.head_dim)
    both = torch.cat((angles, angles), dim=-1)[:, None]
    return both.cos().to(dtype), both.sin().to(dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [n, heads, head_dim] rotated by position; halves make the pairs."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
