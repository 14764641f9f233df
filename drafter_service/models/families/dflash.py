"""DFlash: a block diffusion drafter that reads the target's hidden states (arXiv 2602.06036).

Qwen3's layers without embedding and head of their own. A block is the last committed token and
masks behind it, all of which see each other. Each layer's keys and values of the tokens before come
from the target's fused features and are injected: the drafter feeds none of these tokens. A mask's
state predicts its own token (shift 0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.families.decoder import MLP, Attention, DecoderConfig, rotary, rotated
from drafter_service.models.families.family import qwen3
from drafter_service.models.weights import assigned

# Fields of variants that compute more than this family does, and the values that ask for nothing.
_PLAIN = {
    "attention_bias": (None, False),
    "is_causal": (None, False),
    "input_embedding_scale": (None, 1, 1.0),
    "output_multiplier": (None, 1, 1.0),
    "final_logit_softcapping": (None, 0, 0.0),
    "conv_kernel_size": (None,),
    "selector_rank": (None,),
}


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """One checkpoint: the layers' sizes, and a block's, the last committed token included."""

    decoder: DecoderConfig
    block_size: int
    mask_token_id: int
    eos_token_id: int


def read_config(raw: Mapping[str, Any], target: Mapping[str, Any]) -> DFlashConfig:
    """Return the fields of a checkpoint's config.json; its EOS may stand in its target's alone.

    Raise ValueError for a variant that is not known, or where a field is missing.
    """
    fields = {**raw, **raw["dflash_config"]}
    for name, plain in _PLAIN.items():
        if fields.get(name) not in plain:
            raise ValueError(f"DFlash with {name} {fields[name]!r} is not supported")
    kinds = set(raw.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        raise ValueError(f"DFlash with layers of type {sorted(kinds)} is not supported")
    try:
        decoder = qwen3(raw)
        block_size, mask = int(fields["block_size"]), fields["mask_token_id"]
    except KeyError as error:
        raise ValueError(f"config.json of a dflash model lacks {error.args[0]}") from None
    eos = raw.get("eos_token_id", target.get("eos_token_id"))
    eos = eos[0] if isinstance(eos, list) else eos
    for field, token in (("mask_token_id", mask), ("eos_token_id", eos)):
        if not isinstance(token, int) or not 0 <= token < decoder.vocab_size:
            raise ValueError(f"{field} {token} is outside the vocabulary of {decoder.vocab_size}")
    if block_size < 3:
        raise ValueError(f"block_size {block_size} leaves nothing to draft")
    return DFlashConfig(decoder, block_size, mask, eos)


class InjectedAttention(Attention):
    """Attention of blocks over their contexts' keys and values, and over all of themselves."""

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the keys and values of rows x [n, hidden]: [2, kv_heads, n, head_dim]."""
        heads = (-1, self.head_dim)
        k, v = (part(x).unflatten(1, heads) for part in (self.k_proj, self.v_proj))
        return torch.stack((rotated(self.k_norm(k), cos, sin), v)).transpose(1, 2)

    def mixed(self, x: Tensor, cos: Tensor, sin: Tensor, contexts: Sequence[Tensor]) -> Tensor:
        """Return the mixed rows of blocks of one size, x [blocks x size, hidden].

        contexts [2, kv_heads, tokens, head_dim] are the keys and values before each block.
        """
        q = rotated(self.q_norm(self.q_proj(x).unflatten(1, (-1, self.head_dim))), cos, sin)
        own = self.keys_values(x, cos, sin).chunk(len(contexts), dim=2)
        blocks = []
        for rows, before, block in zip(q.chunk(len(contexts)), contexts, own, strict=True):
            k, v = torch.cat((before, block), dim=2)
            each = F.scaled_dot_product_attention(
                rows.transpose(0, 1)[None], k[None], v[None], enable_gqa=True
            )
            blocks.append(each[0].transpose(0, 1).reshape(len(rows), -1))
        out: Tensor = self.o_proj(torch.cat(blocks))
        return out


class InjectedLayer(nn.Module):
    """Attention with a context injected and MLP, each behind its norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.self_attn = InjectedAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, contexts: Sequence[Tensor]) -> Tensor:
        """Return the layer's output for blocks x (see InjectedAttention.mixed)."""
        x = x + self.self_attn.mixed(self.input_layernorm(x), cos, sin, contexts)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DFlash(nn.Module):
    """The layers and the norm, between the target's embedding and head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(InjectedLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def context(self, features: Tensor, positions: Tensor) -> Tensor:
        """Return every layer's keys and values of features [n, hidden] at positions [n].

        The result is [layers, 2, kv_heads, n, head_dim].
        """
        cos, sin = self._rotary(positions, features.dtype)
        layers: Any = self.layers
        return torch.stack([layer.self_attn.keys_values(features, cos, sin) for layer in layers])

    def forward(self, tokens: Tensor, positions: Tensor, contexts: Sequence[Tensor]) -> Tensor:
        """Return the normed states [n, hidden] of blocks with tokens and positions [n].

        contexts are `context` of what is before each block; blocks are of one size.
        """
        cos, sin = self._rotary(positions, self.embed_tokens.weight.dtype)
        x: Tensor = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, [each[number] for each in contexts])
        normed: Tensor = self.norm(x)
        return normed

    @classmethod
    def of(cls, config: DecoderConfig, weights: Mapping[str, Tensor]) -> DFlash:
        """Return a model over the weights; raise ValueError for missing, unknown or misshapen."""
        return assigned(lambda: cls(config), weights)

    def _rotary(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return rotary(positions, self.config.head_dim, self.config.rope_theta, dtype)
