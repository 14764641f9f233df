"""A drafter in SDAR's format before training: the target's own layers, or an earlier drafter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from drafter_service.models.embedded.shortlist import rows_of_target
from drafter_service.models.families.decoder import Decoder, DecoderConfig, Layer
from drafter_service.models.families.family import qwen3, read_family
from foredraft.errors import WeightsError
from foredraft_align.drafter.sdar import MaskedEmbedding, SdarStudent, WideNorm
from foredraft_align.drafter.stored import StoredTarget, ends_of

_LONGEST = 4096


def decoder_sizes(target: Path) -> DecoderConfig:
    """Return the sizes of a target as a Qwen3-shaped decoder's.

    Raise WeightsError for one that no such decoder is like.
    """
    raw = json.loads((target / "config.json").read_text())
    try:
        return qwen3(raw)
    except (KeyError, ValueError) as error:
        raise WeightsError(f"no drafter can be made of this target: {error}") from None


def sdar_from_target(target: Path, layers: int, block: int, seed: int) -> SdarStudent:
    """Return a drafter whose layers are some of the target's, from its first to its last.

    Where the target is of another shape in a layer, or has packed weights, the layer begins at
    random. Raise WeightsError as decoder_sizes.
    """
    torch.manual_seed(seed)
    own = decoder_sizes(target)
    embedding, head = rows_of_target(target, (own.vocab_size, own.hidden_size))
    stored = StoredTarget(target)
    sizes = replace(own, num_layers=layers, max_len=min(_LONGEST, own.max_len))
    network = Decoder(replace(sizes, vocab_size=own.vocab_size + 1))
    sources = torch.linspace(0, stored.num_layers - 1, layers).round().long().tolist()
    for layer, source in zip(network.layers, sources, strict=True):
        _begin(layer, stored, source)
    network.norm.weight.data.copy_(stored.tensor("model.norm.weight"))
    mask = torch.randn(own.hidden_size) * embedding.float().std()
    return _student(network, embedding, head, mask, block, ends_of(target)[0], target)


def sdar_from_drafter(folder: Path, target: Path, layers: int) -> SdarStudent:
    """Return the drafter of a folder in fp32, with layers added at its end that change nothing.

    Raise WeightsError where the folder holds no drafter of this format for the target.
    """
    try:
        model = read_family(json.loads((folder / "config.json").read_text()), "sdar", None)
        weights = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
    except (OSError, ValueError) as error:
        raise WeightsError(f"{folder.name} is no drafter in SDAR's format: {error}") from None
    assert isinstance(model.sizes, DecoderConfig)
    sizes = model.sizes
    embedding, head = rows_of_target(target, (sizes.vocab_size - 1, sizes.hidden_size))
    network = Decoder(replace(sizes, num_layers=max(layers, sizes.num_layers)))
    network.norm.weight.data.copy_(weights["model.norm.weight"])
    for index, layer in enumerate(network.layers):
        layer.load_state_dict(_of_layer(weights, min(index, sizes.num_layers - 1)))
        if index >= sizes.num_layers:
            nn.init.zeros_(layer.self_attn.o_proj.weight)
            nn.init.zeros_(layer.mlp.down_proj.weight)
    mask = weights["model.embed_tokens.weight"][-1]
    return _student(network, embedding, head, mask, model.block, model.eos_token_id, target)


def _student(
    network: Decoder,
    embedding: Tensor,
    head: Tensor,
    mask: Tensor,
    block: int,
    eos: int,
    target: Path,
) -> SdarStudent:
    network.embed_tokens = MaskedEmbedding(embedding.float(), mask)
    # The head is the target's; the network's own stands for nothing.
    network.lm_head = nn.Identity()
    for layer in network.layers:
        for part in ("q_norm", "k_norm"):
            wide = WideNorm(network.config.head_dim, network.config.rms_eps)
            wide.load_state_dict(getattr(layer.self_attn, part).state_dict())
            setattr(layer.self_attn, part, wide)
    return SdarStudent(network, head.float(), block, eos, target)


def _of_layer(weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    at = f"model.layers.{index}."
    return {name.removeprefix(at): value for name, value in weights.items() if name.startswith(at)}


def _begin(layer: Layer, stored: StoredTarget, source: int) -> None:
    """Take a layer's weights from the target's, if they are of its shape.

    Where the target normalises no heads, the norms begin as what its heads have on average, so
    that the layer begins near the target's.
    """
    at = f"model.layers.{source}."
    found = stored.projections(source)
    expected = layer.state_dict()
    if found is None or any(m.shape != expected[f"{n}.weight"].shape for n, m in found.items()):
        return
    weights = {f"{name}.weight": matrix for name, matrix in found.items()}
    for name in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{name}.weight"] = stored.tensor(f"{at}{name}.weight")
    gains = weights["input_layernorm.weight"]
    for part in ("q", "k"):
        name = f"self_attn.{part}_norm.weight"
        if stored.has(at + name):
            weights[name] = stored.tensor(at + name)
        else:
            size = (found[f"self_attn.{part}_proj"] * gains).square().sum(1).mean().sqrt()
            weights[name] = size.expand(expected[name].shape)
    layer.load_state_dict(weights)
