"""Any-subset texts through the engine: what a row sees, and the text of sequential decoding."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from foredraft.errors import InvalidRequest, WeightsError
from foredraft.layout import Layout
from foredraft.messages import VerifyOpen
from foredraft.types import Grammar, GrammarKind, LogitsParams, SamplingParams
from tests.support.tiny_models import write_tiny
from tests.support.verifiers import (
    decoded,
    finish,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_target
from verifier_service.models import numerics
from verifier_service.models.port import Segment, alloc
from verifier_service.targets.engine import VerifierEngine
from verifier_service.targets.streams import TwoStreams

MASK, VOCAB = 1, 256
LAYOUT = Layout(12, (0, 1, 5, 6, 11))
needs_bf16 = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("any"), any_subset={"mask_token_id": MASK})


@pytest.fixture(scope="module")
def model(checkpoint):
    return load_target(VerifierConfig(model=checkpoint, kv_tokens=4096))


def engine_over(model, overcommit=1.0):
    kv = KvBlocks(
        model.pool, block_tokens=model.block_tokens, max_sessions=16, overcommit=overcommit
    )
    return VerifierEngine(model, kv)


def asked(layout, prefix, sampling, session_id="s", draft=15, self_draft=0):
    new = layout.length - len(prefix)
    return VerifyOpen(
        session_id, prefix, sampling, new, draft, layout=layout, self_draft=self_draft
    )


def some_layout(rng):
    length = int(rng.integers(3, 100))
    given = rng.choice(length, int(rng.integers(1, min(length, 70))), replace=False)
    return Layout(length, tuple(sorted(given.tolist())))


def some_prompt(rng, layout):
    return tuple(rng.integers(2, VOCAB, len(layout.given)).tolist())


def sequential(model, layout, prompt, sampling):
    """The whole text, one token a pass, in order space."""
    engine = engine_over(model)
    handle = engine.open(asked(layout, prompt, sampling))
    found = decoded(engine, handle, prompt, layout.length - len(prompt))
    engine.close(handle)
    return prompt + found


def drafts_for(rng, text, at, most):
    """A draft tree after the first tokens of a text: some of its branches begin as it goes on."""
    tokens: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    for _ in range(most):
        parent = int(rng.integers(-1, len(tokens)))
        depth = 0 if parent < 0 else depths[parent] + 1
        depths.append(depth)
        right = at + depth < len(text) - 1 and rng.random() < 0.7
        tokens.append(int(text[at + depth]) if right else int(rng.integers(2, VOCAB)))
        parents.append(parent)
    return tokens, parents


def by_drafts(engine, handle, rng, text, prompt, k, session_id="s"):
    """Decode with drafts, some right, as paths and as trees; return the text and the passes."""
    found, passes = list(prompt), 0
    while len(found) < len(text):
        most = min(k, len(text) - len(found) - 1)
        draft, parents = drafts_for(rng, text, len(found), most)
        if rng.random() < 0.5:
            draft, parents = draft[:1], []
            draft += text[len(found) + 1 : len(found) + most] if most else []
        request = round_after(found, draft, parents, session_id=session_id)
        verdict = verdict_of(engine, handle, request)
        found += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        passes += 1
    return tuple(found), passes


def test_a_query_row_sees_what_is_known_and_itself(checkpoint):
    model = load_target(VerifierConfig(model=checkpoint, dtype="fp32"))
    theirs = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    rng, blocks = np.random.default_rng(0), alloc(model, 60)
    tokens = tuple(rng.integers(2, VOCAB, 9).tolist())
    prompt, known, sigma = len(LAYOUT.given), 7, LAYOUT.positions
    streams = TwoStreams(LAYOUT, MASK)
    found = model.forward([streams.rows(Segment(blocks, 0, tokens, 4), 2, 1)])
    siblings = Segment(blocks, known - 1, (tokens[known - 1], 4, 5), 3, (-1, -1))
    later = model.forward([streams.rows(siblings, 2, 0)])
    assert (len(found), len(later)) == (4, 3)
    np.testing.assert_allclose(later[0], found[0], atol=2e-4)
    branches = [(0, tokens[:7], 7), (1, tokens[:8], 8), (2, tokens, 9), (3, tokens[:7], 8)]
    others = [(1, (*tokens[:7], 4), 8), (2, (*tokens[:7], 5), 8)]
    for rows, found_rows in ((found, branches), (later, others)):
        for row, content, order in found_rows:
            count = len(content)
            seen = torch.ones(count + 1, count + 1).tril()
            seen[:prompt, :prompt] = 1
            with torch.inference_mode():
                ran = theirs(
                    torch.tensor([[*content, MASK]]),
                    attention_mask=torch.log(seen)[None, None],
                    position_ids=torch.tensor([[*sigma[:count], sigma[order]]]),
                )
            np.testing.assert_allclose(rows[row], ran.logits[0, -1], atol=2e-4)


@needs_bf16
@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("k", [2, 5, 15])
def test_the_text_is_that_of_sequential_decoding(model, temperature, k):
    rng = np.random.default_rng(k)
    for seed in range(8):
        layout = some_layout(rng)
        prompt, sampling = some_prompt(rng, layout), SamplingParams(temperature, seed=seed)
        text = sequential(model, layout, prompt, sampling)
        engine = engine_over(model)
        handle = engine.open(asked(layout, prompt, sampling))
        found, passes = by_drafts(engine, handle, rng, text, prompt, k)
        engine.close(handle)
        assert found == text
        assert passes <= len(text) - len(prompt)
        assert model.pool.available == model.pool.total


def by_itself(engine, handle, text, prompt, most_steps=64, session_id="s"):
    """Decode in plain rounds; return the text and the passes."""
    found, passes = prompt, 0
    while len(found) < len(text):
        steps = min(most_steps, len(text) - len(found))
        verdict = verdict_of(engine, handle, round_after(found, steps=steps, session_id=session_id))
        assert verdict.accepted == 0 and verdict.left_out == 0
        found += verdict.next_tokens
        passes += verdict.timings.passes
    return found, passes


@needs_bf16
@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("k", [1, 2, 5, 15])
def test_a_target_that_drafts_for_itself_writes_the_same_text(model, temperature, k):
    rng, tokens, passes = np.random.default_rng(k), 0, 0
    for seed in range(8):
        layout = some_layout(rng)
        prompt, sampling = some_prompt(rng, layout), SamplingParams(temperature, seed=seed)
        text = sequential(model, layout, prompt, sampling)
        engine = engine_over(model)
        handle = engine.open(asked(layout, prompt, sampling, draft=0, self_draft=k))
        found, made = by_itself(engine, handle, text, prompt, int(rng.integers(1, 65)))
        engine.close(handle)
        assert found == text
        assert made <= len(text) - len(prompt)
        tokens, passes = tokens + len(text) - len(prompt), passes + made
        assert model.pool.available == model.pool.total
    assert passes < tokens or temperature


@needs_bf16
@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.0])
def test_more_layouts_beside_other_sessions(model, temperature):
    """The text of sequential decoding, by drafts of its own, alone and beside eight sessions.

    Half of those are left to right. FOREDRAFT_TEST_LAYOUTS is how many layouts are tried.
    """
    rng, engine = np.random.default_rng(int(10 * temperature)), engine_over(model)
    others, known = (Layout(60, (0, 1, 5, 6, 11)), Layout(60, (0, 1, 2, 3, 4))), (2, 3, 4, 5, 6)
    for seed in range(int(os.environ.get("FOREDRAFT_TEST_LAYOUTS", "12"))):
        layout = some_layout(rng)
        prompt, sampling = some_prompt(rng, layout), SamplingParams(temperature, seed=seed)
        text = sequential(model, layout, prompt, sampling)
        for k, neighbours in product((2, 5, 15, 32), (0, 8)):
            handles = [engine.open(asked(layout, prompt, sampling, draft=0, self_draft=k))]
            for at in range(neighbours):
                sampled = SamplingParams(0.8, seed=at)
                handles.append(engine.open(asked(others[at % 2], known, sampled, self_draft=at)))
                engine.submit(handles[-1], round_after(known, steps=55))
            found, passes = by_itself(engine, handles[0], text, prompt)
            assert found == text and passes <= len(text) - len(prompt)
            for handle in handles:
                engine.close(handle)


@needs_bf16
def test_penalties_and_logprobs_count_the_own_draft(model):
    prompt, sampling = (2, 3, 4, 5, 6), SamplingParams(0.8, seed=1)
    logits = LogitsParams(
        prompt_len=5, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5
    )
    told = []
    for k in (0, 4):
        engine = engine_over(model)
        request = asked(LAYOUT, prompt, sampling, draft=0, self_draft=k)
        handle = engine.open(replace(request, logits=logits, logprobs=2))
        verdict = verdict_of(engine, handle, round_after(prompt, steps=7))
        told.append((verdict.next_tokens, verdict.logprobs))
        engine.close(handle)
    assert told[0] == told[1] and len(told[0][1]) == 7


@needs_bf16
def test_a_client_may_bring_drafts_between(model):
    rng, k = np.random.default_rng(5), 4
    layout = Layout(40, (0, 7, 8, 30))
    prompt, sampling = some_prompt(rng, layout), SamplingParams(0.8, seed=5)
    text = sequential(model, layout, prompt, sampling)
    engine, found = engine_over(model), prompt
    handle = engine.open(asked(layout, prompt, sampling, self_draft=k))
    while len(found) < len(text):
        left = len(text) - len(found)
        draft, parents = drafts_for(rng, text, len(found), min(k, left - 1))
        request = round_after(found, steps=min(3, left))
        if rng.random() < 0.5 and draft:
            request = round_after(found, draft, parents)
        verdict = verdict_of(engine, handle, request)
        found += (*(draft[node] for node in verdict.kept), *verdict.next_tokens)
    engine.close(handle)
    assert found == text


@needs_bf16
def test_such_rows_are_measured_at_the_start(model):
    assert numerics.measure(model) == "exact"
    passes, own = [], model.forward
    model.forward = lambda segments: [passes.append(segments), own(segments)][1]
    try:
        numerics.measure(model)
    finally:
        del model.forward
    assert any(segment.mutual for segments in passes for segment in segments)


@needs_bf16
def test_neighbours_and_lost_kv_change_no_token(model):
    rng = np.random.default_rng(0)
    layouts = [some_layout(rng) for _ in range(8)]
    prompts = [some_prompt(rng, layout) for layout in layouts]
    sampling = [SamplingParams(0.8, seed=seed) for seed in range(8)]
    texts = [sequential(model, *each) for each in zip(layouts, prompts, sampling, strict=True)]
    engine = engine_over(model)
    handles = [
        engine.open(asked(layout, prompt, one, str(name), self_draft=name % 4))
        for name, (layout, prompt, one) in enumerate(zip(layouts, prompts, sampling, strict=True))
    ]
    found = [list(prompt) for prompt in prompts]
    while unfinished := [i for i in range(8) if len(found[i]) < len(texts[i])]:
        drafts = {}
        for i in unfinished:
            left = len(texts[i]) - len(found[i])
            drafts[i] = drafts_for(rng, texts[i], len(found[i]), min(5, left - 1))
            if i % 4:
                drafts[i] = ((), ())
            steps = min(4, left) if i % 4 else 1
            asked_for = round_after(found[i], *drafts[i], session_id=str(i), steps=steps)
            engine.submit(handles[i], asked_for)
        if rng.random() < 0.3:
            # As kv_manager does to a session whose blocks another one takes.
            engine.compact()
            lost = engine._sessions[handles[unfinished[0]]]
            engine._kv.drop(handles[unfinished[0]])
            lost.drop_kv()
        verdicts = finish(engine)
        for i in unfinished:
            verdict, (draft, _) = verdicts[handles[i]], drafts[i]
            found[i] += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
    assert [tuple(text) for text in found] == texts
    for handle in handles:
        engine.close(handle)


@needs_bf16
def test_a_session_goes_on_elsewhere_from_what_is_committed(model):
    prompt, sampling = (2, 3, 4, 5, 6), SamplingParams(1.0, seed=3)
    text = sequential(model, LAYOUT, prompt, sampling)
    for known in range(len(prompt), len(text)):
        assert sequential(model, LAYOUT, text[:known], sampling) == text


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("layout", {"layout": None}),
        ("layout.length", {"layout": Layout(257, (0,))}),
        ("prefix length", {"layout": Layout(12, tuple(range(6)))}),
        ("prefix length", {"layout": Layout(5, (0, 1))}),
        ("max_new_tokens", {"max_new_tokens": 8}),
        ("stop_token_ids", {"stop_token_ids": (4,)}),
        ("grammar", {"grammar": Grammar(GrammarKind.REGEX, "a")}),
        ("prompt_logprobs", {"prompt_logprobs": True, "logprobs": 1}),
        ("features_hash", {"features_hash": "x"}),
        ("self_draft", {"self_draft": 257}),
    ],
)
def test_what_such_a_model_cannot_do_is_refused_by_name(model, field, changes):
    request = asked(LAYOUT, (2, 3, 4, 5, 6), SamplingParams())
    engine = engine_over(model)
    with pytest.raises(InvalidRequest) as refused:
        engine.open(replace(request, **changes), matcher=object())
    assert refused.value.param == field
    assert model.pool.available == model.pool.total
    engine.close(engine.open(request))


def test_no_draft_reaches_beyond_the_text(model):
    engine = engine_over(model)
    handle = engine.open(asked(LAYOUT, (2, 3, 4, 5, 6), SamplingParams()))
    with pytest.raises(InvalidRequest, match="12 tokens") as refused:
        engine.submit(handle, round_after((2, 3, 4, 5, 6), range(2, 9)))
    assert refused.value.param == "draft"
    assert verdict_of(engine, handle, round_after((2, 3, 4, 5, 6), range(2, 8)))


@pytest.mark.parametrize(("field", "value"), [("layout", Layout(9, (0, 1, 2))), ("self_draft", 2)])
def test_other_models_take_no_layout(field, value):
    with pytest.raises(InvalidRequest) as refused:
        make_engine().open(replace(opening(), **{field: value}))
    assert refused.value.param == field


@pytest.mark.parametrize("token", [None, -1, VOCAB, True, "1"])
def test_a_model_without_a_usable_mask_token_is_refused(tmp_path, token):
    folder = write_tiny(tmp_path, any_subset={"mask_token_id": token})
    with pytest.raises(WeightsError, match="mask_token_id"):
        load_target(VerifierConfig(model=folder, dtype="fp32"))
