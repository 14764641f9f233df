"""Fused features that verdicts tell: those of the committed text, whatever happens to its KV."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import InvalidRequest, Overloaded
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.messages import Verdict, VerifyOpen
from foredraft.types import SamplingParams
from tests.support.examples import examples
from tests.support.families.dflash import HIDDEN, write_drafter, write_target
from tests.support.verifiers import BLOCK, RandomModel, finish, make_engine, opening, round_after
from verifier_service.config import FeaturesConfig, VerifierConfig
from verifier_service.load import load_engine
from verifier_service.models.feature_model import FusedModel
from verifier_service.models.port import Segment

WIDTH = 2


def features_of(text: Sequence[int], start: int = 0) -> bytes:
    """What the scripted model tells of a text's tokens: each one, and the text up to it."""
    rows = [(text[at], hash_prefix(text[: at + 1]) & 0x3FFF) for at in range(start, len(text))]
    return np.array(rows, dtype=np.uint16).tobytes()


class TellingModel(RandomModel):
    """Its features say what each row saw."""

    def __init__(self) -> None:
        super().__init__(vocab=4)
        self.info = replace(self.info, features_hash="f", features_width=WIDTH)

    def forward_fused(
        self, segments: Sequence[Segment], rows: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        logits = self.forward(segments)
        every = []
        for segment in segments:
            count = segment.start + len(segment.tokens)
            text, root = self.text(segment.blocks, count), count - len(segment.parents)
            for row in range(segment.start, count):
                seen = text[: min(row + 1, root)]
                node = row - root
                branch: list[int] = []
                while node >= 0:
                    branch.insert(0, text[root + node])
                    node = segment.parents[node]
                every.append([text[row], hash_prefix([*seen, *branch]) & 0x3FFF])
        return logits, np.array(every, dtype=np.uint16)[list(rows)]


def asking(prefix: Sequence[int], told: int = 0, **fields: object) -> VerifyOpen:
    asked = opening(prefix, new=40)
    return replace(asked, features_hash="f", features_from=told, **fields)


def test_the_first_verdict_tells_of_the_prefix_and_later_ones_of_what_was_committed() -> None:
    engine, text = make_engine(TellingModel(), prefill_rows=7), [1, 2, 3, 1, 2] * 5
    handle = engine.open(asking(text))
    told = b""
    for number, draft in enumerate(((), (1, 2), (3, 0, 1), (), (2,))):
        engine.submit(handle, round_after(text, draft, number=number, steps=3))
        verdict = finish(engine)[handle]
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        told += verdict.features
        assert told == features_of(text[:-1])


def test_other_features_than_it_has_are_not_told() -> None:
    for model, name in ((TellingModel(), "g"), (TellingModel(), ""), (RandomModel(vocab=4), "f")):
        engine = make_engine(model)
        handle = engine.open(replace(asking([1, 2]), features_hash=name))
        engine.submit(handle, round_after([1, 2]))
        assert finish(engine)[handle].features == b""


def test_kv_is_shared_only_of_text_whose_features_are_not_asked_for() -> None:
    model = TellingModel()
    engine, text = make_engine(model), [1, 2, 3, 0] * BLOCK
    first = engine.open(opening(text))
    engine.submit(first, round_after(text))
    finish(engine)
    for told, shared in ((0, 0), (2 * BLOCK + 3, 2 * BLOCK), (len(text) - 1, 3 * BLOCK)):
        before = engine.kv.shared_tokens
        handle = engine.open(asking(text, told))
        engine.submit(handle, round_after(text))
        assert finish(engine)[handle].features == features_of(text, told)
        assert engine.kv.shared_tokens - before == shared
        engine.close(handle)


def test_how_many_are_not_asked_for_is_checked() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_engine(TellingModel()).open(asking([1, 2], told=3))
    assert refused.value.param == "features_from"


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 3.0]))
def test_whatever_happens_each_committed_token_is_told_of_once(
    seed: int, overcommit: float
) -> None:
    rng = random.Random(seed)
    sampling = SamplingParams(temperature=0.9, seed=5)
    engine = make_engine(
        TellingModel(),
        kv_tokens=10 * BLOCK,
        overcommit=overcommit,
        prefill_rows=rng.choice([5, 16, 40]),
    )
    beginning = [rng.randrange(4) for _ in range(50)]
    texts: dict[int, list[int]] = {}
    told: dict[int, int | None] = {}
    asked: dict[int, tuple[int, ...]] = {}
    ends: dict[int, int] = {}
    for number in range(100):
        if len(texts) < 5 and rng.random() < 0.2:
            prefix = beginning[: rng.randrange(1, 50)]
            held = rng.randrange(len(prefix))
            telling = rng.random() < 0.7
            request = replace(asking(prefix, held), sampling=sampling)
            try:
                handle = engine.open(request if telling else opening(prefix, new=40))
            except Overloaded:
                continue
            texts[handle], told[handle] = list(prefix), held if telling else None
            ends[handle] = len(prefix) + 25
        for handle, text in list(texts.items()):
            if len(text) > ends[handle] or rng.random() < 0.03:
                engine.close(handle)
                asked.pop(handle, None)
                del texts[handle]
            elif handle not in asked and rng.random() < 0.6:
                draft = tuple(rng.randrange(4) for _ in range(rng.randrange(6)))
                parents = [rng.randrange(-1, node) for node in range(len(draft))]
                engine.submit(handle, round_after(text, draft, parents, number=number, steps=3))
                asked[handle] = draft
        if engine.has_work:
            for handle, verdict in engine.step():
                assert isinstance(verdict, Verdict)
                draft, text = asked.pop(handle), texts[handle]
                text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
                start = told[handle]
                if start is None:
                    assert verdict.features == b""
                else:
                    assert verdict.features == features_of(text[:-1], start)
                    told[handle] = len(text) - 1


def test_an_engine_tells_them_with_its_first_verdict(tmp_path: Path) -> None:
    target, drafter = write_target(tmp_path / "target"), tmp_path / "drafter"
    write_drafter(drafter)
    features = FeaturesConfig(model=drafter)
    config = VerifierConfig(model=target, features=features, kv_tokens=2048, dtype="bf16")
    engine = load_engine(config)
    assert isinstance(engine.model, FusedModel)
    handle = engine.open(replace(asking([5, 6, 7]), features_hash=read_fusion(drafter).hash))
    engine.submit(handle, round_after([5, 6, 7]))
    verdict = finish(engine)[handle]
    assert len(verdict.features) == size(3, HIDDEN)
