"""The decoder that most diffusion LMs are: Llama's and Qwen's layers under a mask of our own.

Weights have transformers' names for Llama, Qwen2 and Qwen3. Rows of several texts go through one
forward; what a row sees is the business of the attention that is passed in, so one module serves
block-causal and fully bidirectional families, whatever of a text is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.families.attending import Attend, Rows
from drafter_service.models.weights import assigned

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""An Attend of one layer."""


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

    def kv_shape(self, tokens: int) -> tuple[int, ...]:
        """Return the shape of every layer's keys and values of so many tokens."""
        return self.num_layers, 2, self.num_kv_heads, tokens, self.head_dim


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

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mix: Mix) -> Tensor:
        """Return the mixed rows of x [n, hidden]."""
        q, k, v = (
            part(x).view(len(x), -1, self.head_dim)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        mixed = mix(rotated(q, cos, sin), rotated(k, cos, sin), v)
        out: Tensor = self.o_proj(mixed.flatten(1))
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

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mix: Mix) -> Tensor:
        """Return the layer's output for rows x [n, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mix)
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

    def forward(self, rows: Rows, attend: Attend) -> Tensor:
        """Return the normed states [n, hidden] of n rows."""
        config, dtype = self.config, self.embed_tokens.weight.dtype
        cos, sin = rotary(rows.positions, config.head_dim, config.rope_theta, dtype)
        x: Tensor = self.embed_tokens(rows.tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, partial(attend, number))
        normed: Tensor = self.norm(x)
        return normed

    @classmethod
    def of(cls, config: DecoderConfig, weights: Mapping[str, Tensor]) -> Decoder:
        """Return a decoder over the weights; raise ValueError for missing, unknown or misshapen."""
        given = dict(weights)
        if config.tied:
            given["lm_head.weight"] = given.get("embed_tokens.weight", torch.empty(0))
        return assigned(lambda: cls(config), given)


def rotary(
    positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [n, 1, head_dim], computed in fp32 as transformers does."""
    even = torch.arange(0, head_dim, 2, device=positions.device).float()
    angles = positions.float()[:, None] / theta ** (even / head_dim)
    both = torch.cat((angles, angles), dim=-1)[:, None]
    return both.cos().to(dtype), both.sin().to(dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [n, heads, head_dim] rotated by position; halves make the pairs."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
