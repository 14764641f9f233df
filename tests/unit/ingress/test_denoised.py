"""Answers of a diffusion target through the ingress's generations."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tokenizers import Tokenizer

from deployments.config import model_path
from deployments.denoiser_pool import DenoiserPool
from deployments.ingress.denoised import DenoisedGenerations
from deployments.ingress.generations import Answering
from deployments.ingress.openai.completions.handler import Completions
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.prompts import Prompts
from deployments.ingress.stream.ended import Ended
from deployments.ingress.stream.sse import Delta, Stops
from deployments.ingress.stream.stopping import Stopping
from foredraft.decoding.block_state import MASKED, extends
from foredraft.denoising import Dynamic, Static, Unmasking
from foredraft.errors import InvalidRequest
from foredraft.strict import parse
from foredraft.types import Acceptance, SamplingParams
from orchestrator.config import OrchestratorConfig
from orchestrator.request import BlockEvent, GenerationRequest
from tests.support.denoiser.paged import InProcess

TOKENIZER = Tokenizer.from_file(str(Path(model_path("models/embedded/tokenizer/tokenizer.json"))))
CONFIG = OrchestratorConfig()


def generations(port: InProcess, ended: list[tuple[int, Ended]]) -> DenoisedGenerations:
    given = {"service": {"model": "/m"}, "drafts": 2, "decoding": {"calls": 1}}
    pool = parse(DenoiserPool, given)

    def count(prompt_tokens: int, what: Ended) -> None:
        ended.append((prompt_tokens, what))

    return DenoisedGenerations(
        "blocks", port.model, TOKENIZER, CONFIG, pool, port, Stopping(), count
    )


def answering(**changes: Any) -> Answering:
    request = GenerationRequest("s", (1, 0), SamplingParams(), 9, **changes)
    return Answering(request, Stops())


async def test_an_answer_is_counted_at_its_end() -> None:
    port = InProcess()
    ended: list[tuple[int, Ended]] = []
    found = [each async for each in generations(port, ended).deltas([answering()], CONFIG)]
    assert sum(len(delta.tokens) for _, delta in found) == 9
    [(prompt_tokens, what)] = ended
    assert (prompt_tokens, what.tokens, what.finish) == (2, 9, "length")
    assert found[-1][1].finish_reason == "length" and port.closed == 1


async def test_a_client_that_leaves_frees_its_session_at_once() -> None:
    port = InProcess()
    ended: list[tuple[int, Ended]] = []
    stream = generations(port, ended).deltas([answering()], CONFIG)
    await anext(stream)
    await stream.aclose()
    assert port.closed == 1 and not port.engine.kv.used_tokens
    assert ended[0][1].finish is None


async def test_what_is_refused_opens_nothing() -> None:
    port = InProcess()
    made = generations(port, [])
    other = CONFIG.model_copy(update={"acceptance": Acceptance.REJECTION})
    for config, answer, field in (
        (other, answering(), "speculative.acceptance"),
        (CONFIG, answering(logprobs=0), "logprobs"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await anext(made.deltas([answer], config))
        assert refused.value.param == field
    assert port.closed == 0 and not port.engine.kv.sessions


async def test_a_stream_has_the_states_of_blocks_where_they_are_requested() -> None:
    async def deltas(asked: Answering) -> list[Delta]:
        made = generations(InProcess(), [])
        return [delta async for _, delta in made.deltas([asked], CONFIG)]

    without, with_states = await deltas(answering()), await deltas(answering(block_states=True))
    assert all(delta.block is None for delta in without)
    blocks = [delta.block for delta in with_states if delta.block is not None]
    tokens = [each.token for delta in with_states for each in delta.tokens]
    assert tokens == [each.token for delta in without for each in delta.tokens]
    # The one slot that the prompt leaves of its block is filled first.
    assert blocks[0] == BlockEvent((MASKED,) * 3, 1)
    for before, after in pairwise(blocks):
        assert after.first > before.first or extends(after.state, before.state)
    # The stream has the filled beginning of the last state.
    for block in blocks:
        for slot, token in enumerate(block.state, block.first):
            assert not 0 <= slot < len(tokens) or token in (MASKED, tokens[slot])


async def test_a_request_may_say_which_slots_a_step_fills() -> None:
    async def calls(unmasking: Unmasking) -> int:
        asked = answering(unmasking=unmasking, speculate=False)
        found = [each async for _, each in generations(InProcess(), []).deltas([asked], CONFIG)]
        assert found[-1].report is not None
        return int(found[-1].report["num_target_passes"])

    # Nine tokens after two of a block of three.
    assert await calls(Static(1)) == 10
    assert await calls(Static(3)) == 4
    assert await calls(Dynamic(0.0)) == 4


@pytest.mark.parametrize("asked", ["dynamic", {"kind": "static", "per_step": 0}])
def test_unmasking_that_is_none_is_refused_by_name(asked: Any) -> None:
    with pytest.raises(ValidationError, match="unmasking"):
        CompletionRequest.model_validate({"model": "m", "prompt": "x", "unmasking": asked})


async def test_a_target_that_reads_left_to_right_unmasks_nothing() -> None:
    made = generations(InProcess(), [])
    made.target = dataclasses.replace(made.target, block_length=0)
    body = {"model": made.name, "prompt": "x", "unmasking": {"kind": "static"}}
    with pytest.raises(InvalidRequest) as refused:
        request = CompletionRequest.model_validate(body)
        await Completions(made, Prompts(TOKENIZER, 99)).answer(request)
    assert refused.value.param == "unmasking"
