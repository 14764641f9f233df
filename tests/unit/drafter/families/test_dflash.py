"""DFlash: a tiny checkpoint in the public format against two references.

One is written out here, row by row and head by head, in fp64; the other is transformers' model of
this kind (muse_glimmer_assistant) with the same weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

from drafter_service.load import load_engine, load_model
from drafter_service.models.families.injected import InjectedDrafter
from drafter_service.models.port import BlockRequest
from foredraft.errors import ConfigError, InvalidRequest, WeightsError
from foredraft.features.fusion import read_fusion
from foredraft.types import Proposal, WarmupProposal
from tests.support.drafters import opening
from tests.support.families.dflash import (
    BLOCK,
    CONFIG,
    EPS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MASK,
    THETA,
    VOCAB,
    as_bytes,
    write_drafter,
)
from tests.support.families.dflash_reference import Weights, config_of, random_features, reference


def transformers_logits(
    weights: Weights, own: Weights, features: torch.Tensor, anchor: int
) -> torch.Tensor:
    """The same by transformers' own model, given features that are fused already."""
    model = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(
            hidden_size=HIDDEN,
            intermediate_size=CONFIG["intermediate_size"],
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            layer_types=["full_attention"] * LAYERS,
            rms_norm_eps=EPS,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            target_layer_ids=[0],
            block_size=BLOCK,
            attn_implementation="eager",
        )
    ).eval()
    model.encoder = torch.nn.Identity()
    mine = {name: w for name, w in weights.items() if name.startswith(("layers.", "norm."))}
    model.load_state_dict(mine)
    tokens = torch.tensor([[anchor] + [MASK] * (BLOCK - 1)])
    with torch.inference_mode():
        states = model(
            noise_embeds=own["model.embed_tokens.weight"][tokens],
            context_hidden_states=features[None],
        ).last_hidden_state
    return states[0, 1:] @ own["lm_head.weight"].T


def request(slot: int, start: int, text: list[int], slots: int, features: torch.Tensor) -> Any:
    """A request whose features are those from `start` on."""
    return BlockRequest(slot, start, text[start:], slots, (), as_bytes(features[start:]))


def test_logits_are_those_of_both_references(pair: tuple[Path, Path, Weights, Weights]) -> None:
    folder, target, weights, own = pair
    drafter = load_model(config_of(folder, target))
    assert isinstance(drafter, InjectedDrafter)
    texts = [([5, 9, 3, 7, 12, 4], BLOCK - 1), ([8, 2, 11], 3), ([6], 2)]
    told = [random_features(len(text) - 1, seed) for seed, (text, _) in enumerate(texts)]
    found = drafter.logits(
        [
            request(slot, 0, text, slots, features)
            for slot, ((text, slots), features) in enumerate(zip(texts, told, strict=True))
        ]
    )
    for oracle in (reference, transformers_logits):
        wanted = [
            oracle(weights, own, features, text[-1])[:slots]
            for (text, slots), features in zip(texts, told, strict=True)
        ]
        torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-5)


def test_features_may_come_little_by_little(pair: tuple[Path, Path, Weights, Weights]) -> None:
    folder, target, weights, own = pair
    drafter = load_model(config_of(folder, target))
    assert isinstance(drafter, InjectedDrafter)
    text = [3 + i % 17 for i in range(90)]
    told = random_features(89)
    # Passes that only cache, then blocks, a cut-back and other tokens behind it.
    drafter.draft([BlockRequest(0, 0, text[:60], 0, (), as_bytes(told[:60]))])
    drafter.draft([BlockRequest(0, 60, text[60:70], 3, (), as_bytes(told[60:69]))])
    drafter.draft([BlockRequest(0, 69, text[69:], 3, (), as_bytes(told[69:]))])
    other = torch.cat((told[:64], random_features(10, 77)))
    found = drafter.logits(
        [BlockRequest(0, 64, [1] * 10 + [9], BLOCK - 1, (), as_bytes(other[64:]))]
    )
    wanted = reference(weights, own, other, 9)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"proposal": Proposal.AR}, "proposal"),
        ({"warmup_proposal": WarmupProposal.AR, "warmup_tokens": 9}, "params.warmup_proposal"),
        ({"extend": True}, "params.extend"),
        ({"steps": 2}, "params.steps"),
    ],
)
def test_what_would_draft_behind_drafted_tokens_is_refused(
    pair: tuple[Path, Path, Weights, Weights], asked: dict[str, Any], param: str
) -> None:
    engine = load_engine(config_of(*pair[:2]))
    with pytest.raises(InvalidRequest) as refused:
        engine.open(opening("s", (5, 9, 3), **asked))
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "sliding_attention"),
        ({"dflash_config": {"mask_token_id": VOCAB, "target_layer_ids": [0, 2]}}, "mask_token_id"),
        ({"dflash_config": {"target_layer_ids": [0, 2]}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": MASK}}, "target_layer_ids"),
        ({"dflash_config": {"conv_kernel_size": 2, "mask_token_id": MASK}}, "conv_kernel_size"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"block_size": 2}, "block_size"),
        ({"vocab_size": VOCAB + 1}, "embed_tokens"),
        ({"num_hidden_layers": 3, "layer_types": None}, "missing weights"),
    ],
)
def test_what_cannot_be_used_is_said(
    pair: tuple[Path, Path, Weights, Weights], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_drafter(tmp_path / "drafter", **change)
    with pytest.raises(WeightsError, match=message):
        load_model(config_of(tmp_path / "drafter", pair[1]))


def test_its_target_must_be_named(pair: tuple[Path, Path, Weights, Weights]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_model(config_of(pair[0], None))
    assert refused.value.param == "target"


def test_the_hash_tells_fusions_apart(tmp_path: Path) -> None:
    write_drafter(tmp_path / "one")
    write_drafter(tmp_path / "two")
    write_drafter(tmp_path / "other", seed=3)
    layers = {"dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 2]}}
    write_drafter(tmp_path / "layers", **layers)
    one, two, other, deeper = (
        read_fusion(tmp_path / name).hash for name in ("one", "two", "other", "layers")
    )
    assert one == two and len({one, other, deeper}) == 3
