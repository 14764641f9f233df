"""DFlash: a tiny checkpoint in the public format against two references.

One is written out here, row by row and head by head, in fp64; the other is transformers' model of
this kind (muse_glimmer_assistant) with the same weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from drafter_service.config import DrafterConfig
from drafter_service.engine import DrafterEngine
from drafter_service.load import load_engine, load_model, load_strategies
from drafter_service.models.families.injected import InjectedDrafter
from drafter_service.models.port import BlockRequest
from foredraft.errors import ConfigError, InvalidRequest, WeightsError
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.types import DraftBlock, FirstTokens, Proposal, SamplingParams
from tests.support.dflash_pair import (
    BLOCK,
    CONFIG,
    EOS,
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
    write_target,
)
from tests.support.drafters import ScriptedLM, asking, counting, opening
from tests.support.drafters import engine_of as scripted_engine

Weights = dict[str, torch.Tensor]


def random_features(tokens: int, seed: int = 5) -> torch.Tensor:
    """Features that bfloat16 holds exactly."""
    values = torch.randn(tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))
    return values.bfloat16().float()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Weights, Weights]:
    """The drafter's folder, the target's folder, and both their weights."""
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    weights = write_drafter(folder / "drafter")
    own = Qwen3ForCausalLM.from_pretrained(target, dtype=torch.float32).state_dict()
    return folder / "drafter", target, weights, own


def config_of(drafter: Path, target: Path | None, **fields: Any) -> DrafterConfig:
    return DrafterConfig(model=drafter, target=target, dtype="float32", **fields)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean() + EPS).sqrt() * weight


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    """Rotary positions of one head's vector, pair by pair."""
    out, half = x.clone(), HEAD_DIM // 2
    for i in range(half):
        angle = position / THETA ** (2 * i / HEAD_DIM)
        cos, sin = math.cos(angle), math.sin(angle)
        out[i] = x[i] * cos - x[i + half] * sin
        out[i + half] = x[i + half] * cos + x[i] * sin
    return out


def reference(weights: Weights, own: Weights, features: torch.Tensor, anchor: int) -> torch.Tensor:
    """Logits [BLOCK - 1, VOCAB] of the masks after an anchor, features [n, hidden] before it."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    before = features.double()
    start = len(before)
    embedding = own["model.embed_tokens.weight"].double()
    rows = [embedding[token] for token in [anchor] + [MASK] * (BLOCK - 1)]
    for layer in range(LAYERS):
        p = f"layers.{layer}."
        normed = [norm(row, w[p + "input_layernorm.weight"]) for row in rows]
        keys, values = [], []
        for position, row in enumerate([*before, *normed]):
            k = (w[p + "self_attn.k_proj.weight"] @ row).view(KV_HEADS, HEAD_DIM)
            k = [turned(norm(head, w[p + "self_attn.k_norm.weight"]), position) for head in k]
            keys.append(k)
            values.append((w[p + "self_attn.v_proj.weight"] @ row).view(KV_HEADS, HEAD_DIM))
        for at, row in enumerate(normed):
            q = (w[p + "self_attn.q_proj.weight"] @ row).view(HEADS, HEAD_DIM)
            mixed = []
            for head in range(HEADS):
                query = turned(norm(q[head], w[p + "self_attn.q_norm.weight"]), start + at)
                shared = head // (HEADS // KV_HEADS)
                scores = torch.stack([query @ key[shared] for key in keys]) / HEAD_DIM**0.5
                share = scores.softmax(0)
                mixed.append(sum(s * v[shared] for s, v in zip(share, values, strict=True)))
            rows[at] = rows[at] + w[p + "self_attn.o_proj.weight"] @ torch.cat(mixed)
        for at, row in enumerate(rows):
            x = norm(row, w[p + "post_attention_layernorm.weight"])
            gate, up = w[p + "mlp.gate_proj.weight"] @ x, w[p + "mlp.up_proj.weight"] @ x
            rows[at] = row + w[p + "mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)
    head = own["lm_head.weight"].double()
    return torch.stack([head @ norm(row, w["norm.weight"]) for row in rows[1:]]).float()


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


def engine_of(folder: Path, target: Path, slots: int, prefill_rows: int) -> DrafterEngine:
    """An engine whose model holds so many sessions' keys and values at once."""
    config = config_of(folder, target)
    model = load_model(config)
    model.capabilities = replace(model.capabilities, cache_slots=slots)  # type: ignore[misc]
    strategies = load_strategies(config, model.capabilities)
    return DrafterEngine(model, strategies.make, load_engine(config).info, 8, prefill_rows)


def best(logits: torch.Tensor) -> tuple[int, ...]:
    """The likeliest token of each row, up to the end of the text; a mask is none."""
    logits[:, MASK] = -torch.inf
    tokens = logits.argmax(-1).tolist()
    return tuple(tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens)


def test_sessions_that_lost_their_keys_and_values_are_rebuilt(
    pair: tuple[Path, Path, Weights, Weights],
) -> None:
    folder, target, weights, own = pair
    engine = engine_of(folder, target, slots=2, prefill_rows=4)
    names = [f"s{i}" for i in range(3)]
    texts = {name: [1 + (i + 5 * at) % 20 for i in range(32)] for at, name in enumerate(names)}
    told = {name: random_features(31, at) for at, name in enumerate(names)}
    handles = {name: engine.open(opening(name, tuple(texts[name][:9])))[0] for name in names}
    before = 0
    for length in (9, 11, 12, 32):
        requests = []
        for name in names:
            keep = 9 if length == 9 else before + 1
            ask = asking(name, tuple(texts[name][:length]), keep, 5)
            features = as_bytes(told[name][before : length - 1])
            requests.append((handles[name], replace(ask, features=features)))
        before = length - 1
        for name, block in zip(names, engine.propose(requests), strict=True):
            assert isinstance(block, DraftBlock)
            wanted = reference(weights, own, told[name][: length - 1], texts[name][length - 1])
            assert block.tokens == best(wanted[:5])
    assert engine.evictions > 3
    # Cut back, and on with other features.
    other = torch.cat((told["s0"][:20], random_features(4, 9)))
    text = [*texts["s0"][:20], 7, 7, 7, 7, 3]
    ask = replace(asking("s0", tuple(text), 20, 5), features=as_bytes(other[20:]))
    [block] = engine.propose([(handles["s0"], ask)])
    assert isinstance(block, DraftBlock)
    assert block.tokens == best(reference(weights, own, other, 3)[:5])


@pytest.mark.parametrize(
    "features",
    [
        b"",
        bytes(size(3, HIDDEN)),
        bytes(size(4, HIDDEN) + 1),
        bytes(size(5, HIDDEN)),
        as_bytes(torch.full((4, HIDDEN), torch.nan)),
        as_bytes(torch.tensor([[0.0] * (HIDDEN - 1) + [-torch.inf]] * 4)),
    ],
)
def test_features_that_are_not_what_is_lacking_are_refused_by_name(
    pair: tuple[Path, Path, Weights, Weights], features: bytes
) -> None:
    folder, target, weights, own = pair
    engine = load_engine(config_of(folder, target))
    text = (5, 9, 3, 7, 12)
    handle, _ = engine.open(opening("s", text))
    ask = asking("s", text, 5, 3)
    [error] = engine.propose([(handle, replace(ask, features=features))])
    assert isinstance(error, InvalidRequest) and error.param == "features"
    # The session is as it was.
    told = random_features(4)
    [block] = engine.propose([(handle, replace(ask, features=as_bytes(told)))])
    assert isinstance(block, DraftBlock)
    assert block.tokens == best(reference(weights, own, told, 12)[:3])
    # Nothing is lacking now.
    [again] = engine.propose([(handle, replace(ask, features=as_bytes(told)))])
    assert isinstance(again, InvalidRequest) and again.param == "features"


def test_a_drafter_that_needs_none_refuses_features() -> None:
    engine = scripted_engine(ScriptedLM(counting))
    handle, _ = engine.open(opening("s", (3, 4)))
    [error] = engine.propose([(handle, replace(asking("s", (3, 4), 2, 3), features=b"1234"))])
    assert isinstance(error, InvalidRequest) and error.param == "features"


@pytest.mark.parametrize("proposal", [Proposal.COUPLED, Proposal.CPS, Proposal.TREE])
def test_every_proposal_can_be_drawn(
    pair: tuple[Path, Path, Weights, Weights], proposal: Proposal
) -> None:
    engine = load_engine(config_of(*pair[:2]))
    text, sampling = (5, 9, 3, 7, 12), SamplingParams(0.8, seed=4)
    handle, about = engine.open(opening("s", text, proposal=proposal, sampling=sampling))
    assert about.model.features_hash == read_fusion(pair[0]).hash
    ask = replace(asking("s", text, 5, 6), features=as_bytes(random_features(4)))
    [block] = engine.propose([(handle, ask)])
    assert isinstance(block, DraftBlock)
    assert 0 < len(block.tokens) <= 6 and MASK not in block.tokens


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"proposal": Proposal.AR}, "proposal"),
        ({"first": FirstTokens.AR, "first_tokens": 9}, "params.first"),
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
