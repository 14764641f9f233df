"""A diffusion target's answers as events: text, end and report; what is refused by name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from foredraft.denoising import DenoiseOpen, Dynamic, Static
from foredraft.errors import DeadlineExceeded, InvalidRequest, Overloaded
from foredraft.layout import Layout
from foredraft.types import FinishReason, Grammar, GrammarKind, LogitsParams, SamplingParams
from orchestrator.config import DenoisingConfig
from orchestrator.drive.denoised_events import denoise_open, denoised_events
from orchestrator.ports import DenoiseStream
from orchestrator.request import GenerationRequest, StepEvent, Summary
from orchestrator.waiting_line import WaitingLine
from tests.support.denoiser.paged import InProcess, opening

REQUEST = GenerationRequest("s", (1, 0), SamplingParams(1.0, seed=3), 9, (2,))
CONFIG = DenoisingConfig(calls=1)


async def test_events_have_the_text_and_the_summary_why_it_ended() -> None:
    for stops, seed in (((2,), 3), ((), 4)):
        port = InProcess()
        opened = opening((1, 0), 9, temperature=1.0, seed=seed, stops=stops)
        events = [event async for event in denoised_events(opened, port, CONFIG)]
        *steps, summary = events
        assert isinstance(summary, Summary)
        found = tuple(t.token for step in steps if isinstance(step, StepEvent) for t in step.tokens)
        assert all(isinstance(step, StepEvent) and step.tokens for step in steps)
        stopped = found[-1] in stops
        assert summary.finish is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert stopped or len(found) == 9
        assert summary.report.tokens == len(found) and summary.report.rounds == len(steps)
        assert port.closed == 1 and not port.engine.kv.used_tokens


async def test_a_deadline_and_a_reader_that_leaves_end_the_session() -> None:
    port = InProcess(delay_s=30)
    with pytest.raises(DeadlineExceeded):
        async for _ in denoised_events(opening(), port, CONFIG, timeout_s=0.05):
            pass
    assert port.closed == 1
    port = InProcess(delay_s=0.01)
    events = denoised_events(opening(), port, CONFIG)
    await anext(events)
    await events.aclose()
    assert port.closed == 1 and not port.engine.kv.used_tokens


async def test_a_new_session_waits_for_room_where_it_may() -> None:
    port, line, full = InProcess(), WaitingLine(), True
    opens = port.open

    async def open_(request: DenoiseOpen) -> DenoiseStream:
        if full:
            raise Overloaded("no room")
        return await opens(request)

    port.open = open_
    with pytest.raises(Overloaded):
        await anext(denoised_events(opening(), port, CONFIG))
    admit = partial(line.admit, tenant="", wait_s=5.0)
    events = denoised_events(opening(), port, CONFIG, admit=admit, quiet_s=0.02)
    assert await anext(events) is None and line.waiting == 1
    full = False
    found = [event async for event in events]
    assert isinstance(found[-1], Summary) and not line.waiting


async def test_a_quiet_session_gives_signs_of_life() -> None:
    events = denoised_events(opening(), InProcess(delay_s=0.2), CONFIG, quiet_s=0.02)
    assert await anext(events) is None
    await events.aclose()


def test_a_request_says_how_its_session_is_opened() -> None:
    opened = denoise_open(REQUEST, Dynamic(0.5), 3)
    assert (opened.prefix, opened.max_new_tokens, opened.max_drafts) == ((1, 0), 9, 3)
    assert (opened.unmasking, opened.stop_token_ids) == (Dynamic(0.5), (2,))
    assert denoise_open(replace(REQUEST, speculate=False), Static(1), 3).max_drafts == 0


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("logprobs", {"logprobs": 0}),
        ("grammar", {"grammar": Grammar(GrammarKind.REGEX, "a")}),
        ("layout", {"layout": Layout(9, (0, 1))}),
        ("top_k", {"sampling": SamplingParams(top_k=1)}),
        ("top_p", {"sampling": SamplingParams(top_p=0.5)}),
        ("min_p", {"sampling": SamplingParams(min_p=0.5)}),
        ("repetition_penalty", {"logits": LogitsParams(repetition_penalty=2)}),
        ("presence_penalty", {"logits": LogitsParams(presence_penalty=1)}),
        ("frequency_penalty", {"logits": LogitsParams(frequency_penalty=1)}),
        ("min_tokens", {"logits": LogitsParams(min_tokens=1)}),
        ("logit_bias", {"logits": LogitsParams(logit_bias=((1, 1.0),))}),
        ("allowed_token_ids", {"logits": LogitsParams(allowed_token_ids=(1,))}),
    ],
)
def test_what_only_another_target_serves_is_refused_by_name(field, changes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        denoise_open(replace(REQUEST, **changes), Static(1), 3)
    assert refused.value.param == field
