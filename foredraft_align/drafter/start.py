"""A drafter before training: the target's own layers, embedding and head."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.models.embedded.shortlist import rows_of_target
from foredraft.errors import WeightsError
from foredraft_align.drafter.stored import StoredTarget, ends_of


def layers_to_read(num_layers: int) -> tuple[int, ...]:
    """Return four layers of a target, early to late, whose hidden states a drafter reads.

    The last layer's are left out: the compiled forward keeps none.
    """
    last = num_layers - 2
    return tuple(sorted({max(0, round(share * last)) for share in (0.04, 0.35, 0.68, 1.0)}))


def drafter_config(
    target: Path, layers: int, max_block: int, shortlist: int, layer_ids: tuple[int, ...]
) -> BlockCausalConfig:
    """Return the configuration of a drafter of a target's width.

    Raise WeightsError for a target whose heads do not divide its width.
    """
    raw: dict[str, Any] = json.loads((target / "config.json").read_text())
    vocab, heads = int(raw["vocab_size"]), int(raw["num_attention_heads"])
    rope = raw.get("rope_parameters") or {}
    ends = ends_of(target)
    # Never a candidate, so one that no text holds: a chat format's first token, if there is one.
    mask = raw.get("bos_token_id")
    try:
        return BlockCausalConfig(
            vocab_size=vocab,
            hidden_size=int(raw["hidden_size"]),
            num_heads=heads,
            intermediate_size=int(raw["intermediate_size"]),
            num_layers=layers,
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
            rms_eps=float(raw["rms_norm_eps"]),
            mask_token_id=mask if isinstance(mask, int) and mask not in ends else vocab - 1,
            eos_token_id=ends[0],
            max_position_embeddings=min(4096, int(raw["max_position_embeddings"])),
            max_block=max_block,
            shortlist_size=shortlist,
            target_layer_ids=layer_ids,
            anchored=True,
        )
    except ValueError as error:
        raise WeightsError(f"no drafter can be made of this target: {error}") from None


def drafter_from_target(
    config: BlockCausalConfig, target: Path, token_ids: tuple[int, ...], seed: int
) -> BlockCausalDLM:
    """Return a drafter whose layers are some of the target's: from its first to its last, or its
    last ones where what they read is there, the state behind a late layer.

    Where the target is of another shape in a layer (other attention heads, biases), or has packed
    weights, the layer begins at random.
    """
    torch.manual_seed(seed)
    model = BlockCausalDLM(config)
    embedding, head = rows_of_target(target, (config.vocab_size, config.hidden_size))
    listed = torch.tensor(token_ids)
    model.set_shortlist(listed)
    model.embedding.weight.data.copy_(embedding)
    assert model.head is not None
    model.head.weight.data.copy_(head[listed])
    stored = StoredTarget(target)
    reads = bool(config.target_layer_ids)
    begin = max(0, stored.num_layers - config.num_layers) if reads else 0
    sources = torch.linspace(begin, stored.num_layers - 1, config.num_layers)
    for layer, source in zip(model.layers, sources.round().long().tolist(), strict=True):
        weights = _layer(stored, source, config)
        if weights is not None:
            layer.load_state_dict(weights)
    model.norm.weight.data.copy_(stored.tensor("model.norm.weight"))
    generator = torch.Generator().manual_seed(seed)
    scale = float(model.embedding.weight.std())
    nn.init.normal_(model.mask_slots, std=scale, generator=generator)
    nn.init.normal_(model.edge_previous.weight, std=0.3, generator=generator)
    nn.init.zeros_(model.edge_next.weight)
    nn.init.normal_(model.edge_gate.weight, std=0.02, generator=generator)
    nn.init.ones_(model.edge_gate.bias)
    if reads:
        # The late layer's state as it is, and little of the others.
        nn.init.normal_(model.fc.weight, std=0.002, generator=generator)
        model.fc.weight.data[:, -config.hidden_size :] += torch.eye(config.hidden_size)
        nn.init.constant_(model.hidden_norm.weight, scale)
    return model


def drafter_from_drafter(folder: Path, target: Path, layers: int) -> BlockCausalDLM:
    """Return the drafter of a folder in fp32, with layers added at its end that change nothing."""
    old = BlockCausalDLM.load(folder, torch.float32, target)
    model = BlockCausalDLM(replace(old.config, num_layers=max(layers, old.config.num_layers)))
    model.load_state_dict(old.state_dict(), strict=False)
    model.set_shortlist(old.token_ids)
    for layer in list(model.layers)[old.config.num_layers :]:
        layer.load_state_dict(old.layers[-1].state_dict())
        nn.init.zeros_(layer.out.weight)
        nn.init.zeros_(layer.down.weight)
    return model


def _layer(stored: StoredTarget, index: int, config: BlockCausalConfig) -> dict[str, Tensor] | None:
    """Return a Llama-shaped layer's weights by the drafter's names, None for another shape.

    Key and value heads that queries share are repeated.
    """
    at = f"model.layers.{index}."
    if stored.has(f"{at}self_attn.q_norm.weight"):
        return None
    found = stored.projections(index)
    if found is None or len(found["self_attn.q_proj"]) != config.hidden_size:
        return None

    def repeated(name: str) -> Tensor:
        heads = found[name].unflatten(0, (stored.num_kv_heads, -1))
        times = config.num_heads // stored.num_kv_heads
        return heads.repeat_interleave(times, dim=0).flatten(0, 1)

    qkv = found["self_attn.q_proj"], repeated("self_attn.k_proj"), repeated("self_attn.v_proj")
    return {
        "attention_norm.weight": stored.tensor(f"{at}input_layernorm.weight"),
        "qkv.weight": torch.cat(qkv),
        "out.weight": found["self_attn.o_proj"],
        "mlp_norm.weight": stored.tensor(f"{at}post_attention_layernorm.weight"),
        "gate_up.weight": torch.cat((found["mlp.gate_proj"], found["mlp.up_proj"])),
        "down.weight": found["mlp.down_proj"],
    }
