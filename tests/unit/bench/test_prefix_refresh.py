"""Drafters of several refresh periods behind one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.micro.prefix_refresh import NEVER, Written, drafted, rows
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftBlock, DraftOpen, Propose
from foredraft.types import Base, Proposal, SamplingParams
from tests.support.families.public import CASES, write


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(CASES["dream"], tmp_path / "model")
    return tmp_path / "model"


def likeliest(model: Path, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """What the drafter says itself, a token of each pass over the whole text."""
    engine = load_engine(DrafterConfig(model=model, dtype="float32", prefix_refresh=0))
    handle, _ = engine.open(DraftOpen("s", prompt, SamplingParams(), Proposal.COUPLED, 60))
    text = prompt
    while len(text) < len(prompt) + count:
        base = Base("s", 0, len(text), hash_prefix(text))
        [block] = engine.propose([(handle, Propose(base, 0, text, 1))])
        assert isinstance(block, DraftBlock)
        text = (*text, block.tokens[0])
    return text[len(prompt) :]


def test_every_round_keeps_what_agrees_and_goes_on(model: Path) -> None:
    prompt = (5, 9, 33, 7)
    text = Written(prompt, likeliest(model, prompt, 20), SamplingParams())
    sides = drafted(model, (0, 4, NEVER), [text, text])
    assert [str(side) for side in sides] == ["every pass", "4 tokens", "never"]
    for side in sides:
        assert len(side.times) == len(side.kept)
        # Each round takes what it kept and one token more; the last token is nobody's to draft.
        assert 2 * 19 <= sum(side.kept) + len(side.kept) <= 2 * 20
    # A round's first token is the drafter's own.
    assert min(sides[0].kept) >= 1
    assert [line.split("|")[2].strip() for line in rows(0.0, [text], sides)] == [
        "every pass",
        "4 tokens",
        "never",
    ]
