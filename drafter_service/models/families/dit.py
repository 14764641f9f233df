"""MDLM's network: a diffusion transformer whose norms are modulated by the level of the noise.

Sahoo et al., "Simple and Effective Masked Diffusion Language Models" (2024), after Peebles and Xie,
"Scalable Diffusion Models with Transformers" (2023). Weights have the names of the released
checkpoints but for the embedding and the head, which are named as the decoder's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.families.attending import Attend, Rows
from drafter_service.models.families.decoder import Mix, rotary, rotated
from drafter_service.models.weights import assigned

_ROPE_THETA = 10_000.0
_WAVES, _LONGEST_WAVE = 128, 10_000.0
# LogLinearNoise of the public code: a text at time 1 keeps one token in a thousand.
_LEAST_KEPT = 1e-3


@dataclass(frozen=True, slots=True)
class DitConfig:
    """Sizes; cond_size is the width of the noise level's embedding.

    With time_conditioning the level is an input; without, the network always sees level 0.
    """

    vocab_size: int
    hidden_size: int
    cond_size: int
    num_blocks: int
    num_heads: int
    max_len: int
    time_conditioning: bool

    def kv_shape(self, tokens: int) -> tuple[int, ...]:
        """Return the shape of every block's keys and values of so many tokens."""
        return self.num_blocks, 2, self.num_heads, tokens, self.hidden_size // self.num_heads


class SigmaMap(nn.Module):
    """Embeds noise levels: waves of them, then an MLP."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        width = config.cond_size
        self.mlp = nn.Sequential(nn.Linear(2 * _WAVES, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, sigma: Tensor) -> Tensor:
        """Return the embeddings [m, cond] of levels sigma [m], single precision."""
        waves = torch.arange(_WAVES, device=sigma.device).float() / _WAVES
        angles = sigma[:, None] * torch.exp(-math.log(_LONGEST_WAVE) * waves)
        level = torch.cat((angles.cos(), angles.sin()), dim=-1)
        out: Tensor = self.mlp(level.to(next(self.parameters()).dtype))
        return out


class Block(nn.Module):
    """Attention and MLP, each behind a norm that the condition shifts and scales, then gated."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.num_heads = config.num_heads
        self.norm1 = nn.LayerNorm(hidden, bias=False)
        self.attn_qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attn_out = nn.Linear(hidden, hidden, bias=False)
        self.norm2 = nn.LayerNorm(hidden, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * hidden, hidden),
        )
        self.adaLN_modulation = nn.Linear(config.cond_size, 6 * hidden)

    def forward(self, x: Tensor, condition: Tensor, cos: Tensor, sin: Tensor, mix: Mix) -> Tensor:
        """Return the block's output for rows x [n, hidden] under condition [n or 1, cond]."""
        parts = self.adaLN_modulation(condition).chunk(6, dim=-1)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = parts
        x = x + gate * self._attention(_modulated(self.norm1(x), shift, scale), cos, sin, mix)
        out: Tensor = x + mlp_gate * self.mlp(_modulated(self.norm2(x), mlp_shift, mlp_scale))
        return out

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor, mix: Mix) -> Tensor:
        q, k, v = self.attn_qkv(x).view(len(x), 3, self.num_heads, -1).unbind(1)
        mixed = mix(rotated(q, cos, sin), rotated(k, cos, sin), v)
        out: Tensor = self.attn_out(mixed.flatten(1))
        return out


class OutputLayer(nn.Module):
    """The last norm, modulated too."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.norm_final = nn.LayerNorm(config.hidden_size, bias=False)
        self.adaLN_modulation = nn.Linear(config.cond_size, 2 * config.hidden_size)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return the normed states of rows x [n, hidden] under condition [n or 1, cond]."""
        shift, scale = self.adaLN_modulation(condition).chunk(2, dim=-1)
        return _modulated(self.norm_final(x), shift, scale)


class Dit(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.sigma_map = SigmaMap(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_blocks))
        self.output_layer = OutputLayer(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, rows: Rows, attend: Attend) -> Tensor:
        """Return the normed states [n, hidden] of n rows."""
        condition = F.silu(self.sigma_map(self._sigma(rows.masked)))
        x: Tensor = self.embed_tokens(rows.tokens)
        head_dim = self.config.hidden_size // self.config.num_heads
        cos, sin = rotary(rows.positions, head_dim, _ROPE_THETA, x.dtype)
        for number, block in enumerate(self.blocks):
            x = block(x, condition, cos, sin, partial(attend, number))
        normed: Tensor = self.output_layer(x, condition)
        return normed

    def _sigma(self, masked: Tensor) -> Tensor:
        """Return each row's noise level [n], or [1] for all: -log of the chance to be no mask.

        That chance is linear in time, and a text's time is its share of masks.
        """
        if not self.config.time_conditioning:
            return torch.zeros(1, device=masked.device)
        return -torch.log1p(-(1 - _LEAST_KEPT) * masked)

    @classmethod
    def of(cls, config: DitConfig, weights: Mapping[str, Tensor]) -> Dit:
        """Return a network over the weights; raise ValueError for missing, unknown or misshapen."""
        return assigned(lambda: cls(config), weights)


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale) + shift
