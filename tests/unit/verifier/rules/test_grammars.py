"""Texts under a grammar: what may come next, in drafts and without, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from deployments.config import model_path
from foredraft.errors import InvalidRequest
from foredraft.model_files import tokenizer_file
from foredraft.types import Grammar, GrammarKind, SamplingParams
from tests.support.verifiers import (
    CountingModel,
    kv_of,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.rules.grammars import TokenGrammars
from verifier_service.targets.engine import VerifierEngine

FOLDER = "models/embedded/tokenizer"
TOKENIZER = Tokenizer.from_file(model_path(f"{FOLDER}/tokenizer.json"))
VOCAB, EOS = TOKENIZER.get_vocab_size(), 0
CALL = Grammar(GrammarKind.REGEX, r"f\([a-z]{1,12}(, [a-z]{1,12})?\)")
PROMPT = (5, 6, 7)


class Noise(CountingModel):
    """Random logits of its own for every length of text: no sense in them but the grammar's."""

    def __init__(self) -> None:
        super().__init__(max_len=200, vocab=VOCAB)

    def logits(self, text: list[int]) -> np.ndarray:  # type: ignore[override]
        seed = hash(tuple(text)) % (1 << 32)
        return np.random.default_rng(seed).normal(0, 2, VOCAB)


@pytest.fixture(scope="module")
def grammars() -> TokenGrammars:
    found = tokenizer_file(Path(model_path(FOLDER)))
    assert found is not None
    return TokenGrammars(found, VOCAB, [EOS])


def text_of(tokens: tuple[int, ...]) -> str:
    return str(TOKENIZER.decode(list(tokens)))


def spoken(
    grammars: TokenGrammars, sampling: SamplingParams, truth: tuple[int, ...]
) -> tuple[int, ...]:
    """A text to its EOS, by drafts cut from truth with a wrong token in them, or plainly."""
    model = Noise()
    engine = VerifierEngine(model, kv_of(model), grammars=grammars)
    asked = replace(opening(PROMPT, stop=(EOS,), sampling=sampling), grammar=CALL)
    handle = engine.open(asked, engine.guide(CALL))
    text, number = list(PROMPT), 0
    while EOS not in text[3:]:
        while engine.has_work:
            engine.step()
        draft = truth[len(text) - 3 :][:5]
        if number % 2 and len(draft) > 1:
            draft = (draft[0], 99, *draft[2:])
        verdict = verdict_of(engine, handle, round_after(text, draft, number=number))
        text += [*draft[: verdict.accepted], *verdict.next_tokens]
        number += 1
    return tuple(text[3 : text.index(EOS, 3)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_follows_its_grammar_and_drafts_change_nothing(
    grammars: TokenGrammars, temperature: float
) -> None:
    for seed in range(3):
        sampling = SamplingParams(temperature, seed=seed)
        plain = spoken(grammars, sampling, ())
        assert re.fullmatch(CALL.text, text_of(plain))
        assert spoken(grammars, sampling, (*plain, EOS)) == plain


def test_a_guide_is_as_it_was_after_any_branch(grammars: TokenGrammars) -> None:
    guide = grammars.guide(CALL)
    before = guide.allowed(())
    ids = TOKENIZER.encode("f(abc)").ids
    ended = guide.allowed(ids)
    assert np.flatnonzero(ended).tolist() == [EOS]
    assert not guide.allowed([*ids, EOS, EOS])[1:].any()
    guide.allowed([ids[0], 99, 99])
    assert (guide.allowed(()) == before).all()
    guide.extend(ids[0])
    assert not (guide.allowed(()) == before).all()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.REGEX, "(("),
        Grammar(GrammarKind.LARK, "begin: 'a'"),
        Grammar(GrammarKind.JSON_SCHEMA, "{"),
        Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "nothing"})),
    ],
)
def test_what_is_no_grammar_is_refused(grammars: TokenGrammars, grammar: Grammar) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grammars.guide(grammar)
    assert refused.value.param == "grammar"


def test_a_target_without_a_tokenizer_takes_no_grammar() -> None:
    with pytest.raises(InvalidRequest, match="tokenizer"):
        make_engine().open(replace(opening(PROMPT), grammar=CALL))
