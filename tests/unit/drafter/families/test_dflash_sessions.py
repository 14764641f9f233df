"""DFlash's sessions in the engine: features that come, are lost and are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter_service.engine import DrafterEngine
from drafter_service.load import load_engine, load_model, load_strategies
from foredraft.errors import InvalidRequest
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.messages import DraftBlock
from foredraft.types import Proposal, SamplingParams
from tests.support.drafters import ScriptedLM, asking, counting, opening
from tests.support.drafters import engine_of as scripted_engine
from tests.support.families.dflash import (
    EOS,
    HIDDEN,
    MASK,
    as_bytes,
)
from tests.support.families.dflash_reference import Weights, config_of, random_features, reference


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
