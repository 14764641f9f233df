"""The target's training module: the Llama shape with fused projections, and its export to the
Hugging Face layout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.embedded.int8_rows import from_int8_rows, to_int8_rows


@dataclass(frozen=True)
class TargetShape:
    """Sizes of the target. `hidden` must be `heads` times an even head size."""

    vocab: int = 4096
    hidden: int = 384
    layers: int = 8
    heads: int = 6
    intermediate: int = 1024
    rope_theta: float = 10_000.0
    rms_eps: float = 1e-5
    max_positions: int = 2048


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin [..., head_dim] in fp32 for integer positions [...], in the rotate-half layout of
    Llama.
    """
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = positions.float().unsqueeze(-1) * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies rotary embedding to x [..., head_dim]; cos and sin broadcast against it."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


CHUNK = 128
"""Queries that share a product with all keys up to the last of them."""

NEVER = -1e9
"""Added to the score of a key that may not be seen."""


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of q, k, v [batch, heads, length, head_dim], as two products and a softmax.

    Compiled, at 512 positions on a CPU, forward and backward take less than half of
    the time of torch's own attention.
    """
    mixed = []
    for start in range(0, q.shape[2], CHUNK):
        queries = q[:, :, start : start + CHUNK]
        end = start + queries.shape[2]
        future = torch.full((queries.shape[2], end), NEVER).triu(start + 1)
        mixed.append(masked_attention(queries, k[:, :, :end], v[:, :, :end], future))
    return torch.cat(mixed, dim=2)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Attention with `hidden` [..., queries, keys], NEVER or 0, added to the scores."""
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden.to(q.dtype))
    scores = (q @ k.transpose(2, 3)).float() * q.shape[3] ** -0.5 + hidden
    return scores.softmax(-1).to(v.dtype) @ v


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of q, k, v [batch, heads, length, head_dim]"""


class TargetLayer(nn.Module):
    """One pre-norm Llama layer."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        h, f = shape.hidden, shape.intermediate
        self.heads = shape.heads
        self.attention_norm = nn.RMSNorm(h, shape.rms_eps)
        self.qkv = nn.Linear(h, 3 * h, bias=False)
        self.out = nn.Linear(h, h, bias=False)
        self.mlp_norm = nn.RMSNorm(h, shape.rms_eps)
        self.gate_up = nn.Linear(h, 2 * f, bias=False)
        self.down = nn.Linear(f, h, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend = causal_attention
    ) -> Tensor:
        """x [batch, length, hidden], cos and sin [length, head_dim]."""
        b, n, h = x.shape
        q, k, v = (
            self.qkv(self.attention_norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        mixed = attend(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, h))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class TargetModel(nn.Module):
    """Decoder with tied embeddings. Parameters are fp32; run it under bf16 autocast."""

    def __init__(self, shape: TargetShape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(TargetLayer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, shape.rms_eps)
        cos, sin = rope_tables(
            torch.arange(shape.max_positions), shape.hidden // shape.heads, shape.rope_theta
        )
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                scale = 0.02 / (2 * shape.layers) ** 0.5 if residual else 0.02
                nn.init.normal_(parameter, std=scale, generator=generator)

    def hidden(
        self, tokens: Tensor, attend: Attend = causal_attention, positions: Tensor | None = None
    ) -> Tensor:
        """Final normalised hidden states [batch, length, hidden] of tokens [batch, length].

        `positions` [length] are 0, 1, 2 and so on if they are not given.
        """
        x = self.embedding(tokens)
        at = slice(tokens.shape[1]) if positions is None else positions
        cos, sin = self.cos[at], self.sin[at]
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Mean next-token cross-entropy in nats; labels [batch, length] are already shifted."""
        logits = F.linear(self.hidden(tokens), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def hf_config(shape: TargetShape) -> dict[str, object]:
    """The Hugging Face LlamaConfig fields of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.hidden // shape.heads,
        "intermediate_size": shape.intermediate,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.rms_eps,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
    }


QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
        }
    },
}
"""How config.json marks linear weights that are stored in int8, a scale for each row."""


def hf_tensors(model: TargetModel) -> dict[str, Tensor]:
    """Weights in bf16 under the names of LlamaForCausalLM (fused projections split again)."""
    out: dict[str, Tensor] = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
    }
    for index, layer in enumerate(model.layers):
        base = f"model.layers.{index}."
        for name, part in zip("qkv", layer.qkv.weight.chunk(3), strict=True):
            out[f"{base}self_attn.{name}_proj.weight"] = part
        out[f"{base}self_attn.o_proj.weight"] = layer.out.weight
        for name, part in zip(("gate", "up"), layer.gate_up.weight.chunk(2), strict=True):
            out[f"{base}mlp.{name}_proj.weight"] = part
        out[f"{base}mlp.down_proj.weight"] = layer.down.weight
        out[f"{base}input_layernorm.weight"] = layer.attention_norm.weight
        out[f"{base}post_attention_layernorm.weight"] = layer.mlp_norm.weight
    return {name: tensor.detach().bfloat16().contiguous() for name, tensor in out.items()}


def export_target(
    model: TargetModel, directory: Path, fields: Mapping[str, object] | None = None
) -> None:
    """Writes config.json, generation_config.json and model.safetensors: embedding and norms in
    bf16, linear weights in int8 rows, which take half of the room and are bf16 again once loaded.

    `fields` of config.json are added, or take the place of a Llama's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = hf_tensors(model)
    linear = {name: tensors.pop(name) for name in list(tensors) if name.endswith("proj.weight")}
    save_file(
        tensors | to_int8_rows(linear), directory / "model.safetensors", metadata={"format": "pt"}
    )
    config = hf_config(model.shape) | {"quantization_config": QUANTIZATION, **(fields or {})}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def load_target(directory: Path) -> TargetModel:
    """Reads an exported target back into the fused module, in fp32."""
    config = json.loads((directory / "config.json").read_text())
    shape = TargetShape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        intermediate=config["intermediate_size"],
        rope_theta=config["rope_theta"],
        rms_eps=config["rms_norm_eps"],
        max_positions=config["max_position_embeddings"],
    )
    stored = from_int8_rows(load_file(directory / "model.safetensors"))
    weights = {name: tensor.float() for name, tensor in stored.items()}
    state = {
        "embedding.weight": weights["model.embed_tokens.weight"],
        "norm.weight": weights["model.norm.weight"],
    }
    for index in range(shape.layers):
        base, ours = f"model.layers.{index}.", f"layers.{index}."
        attention = [weights[f"{base}self_attn.{part}_proj.weight"] for part in "qkv"]
        gate_up = [weights[f"{base}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        state[ours + "qkv.weight"] = torch.cat(attention)
        state[ours + "out.weight"] = weights[f"{base}self_attn.o_proj.weight"]
        state[ours + "gate_up.weight"] = torch.cat(gate_up)
        state[ours + "down.weight"] = weights[f"{base}mlp.down_proj.weight"]
        state[ours + "attention_norm.weight"] = weights[f"{base}input_layernorm.weight"]
        state[ours + "mlp_norm.weight"] = weights[f"{base}post_attention_layernorm.weight"]
    model = TargetModel(shape, seed=0)
    model.load_state_dict(state)
    return model


def sources(layers: int, larger: int) -> list[int]:
    """Which of `layers` each of the `larger` number of layers that `grown` makes is a copy of."""
    return [index * layers // larger for index in range(larger)]


@torch.no_grad()
def grown(model: TargetModel, layers: int) -> TargetModel:
    """The same function with more layers: copies of its own, spread evenly, that add nothing yet.

    Block expansion (LLaMA Pro, Wu et al. 2024, section 3.2): a copy's two output projections
    start at zero. Raises ValueError when `layers` is below what the model has.
    """
    if layers < len(model.layers):
        raise ValueError(f"layers: the model has {len(model.layers)} already, {layers} asked")
    larger = TargetModel(replace(model.shape, layers=layers), seed=0)
    larger.embedding.load_state_dict(model.embedding.state_dict())
    larger.norm.load_state_dict(model.norm.state_dict())
    copied = sources(len(model.layers), layers)
    for index, source in enumerate(copied):
        layer = larger.get_submodule(f"layers.{index}")
        layer.load_state_dict(model.layers[source].state_dict())
        if source in copied[:index]:
            for name in ("out", "down"):
                layer.get_parameter(f"{name}.weight").zero_()
    return larger
