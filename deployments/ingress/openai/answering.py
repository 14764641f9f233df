"""From a request's fields and prompts to its answer: the part that all OpenAI routes share."""

from __future__ import annotations

import math
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from fastapi.responses import JSONResponse, Response, StreamingResponse

from deployments.ingress.doors.tenant import KEY_NAME, group_of, salt_of
from deployments.ingress.generations import Answering, Decoding
from deployments.ingress.openai.answer import Answer, BodyKind, ChoiceWriter
from deployments.ingress.openai.fields import GenerationFields
from deployments.ingress.stream.cadence import smoothed
from deployments.ingress.stream.resume import FIELD, EventId, Sent, read_id, resumed
from deployments.ingress.stream.sse import CompletionBuffer, Delta, Stops
from foredraft.errors import InvalidRequest
from foredraft.layout import Layout, with_hole
from foredraft.limits import check_logits, check_tokens
from foredraft.types import Acceptance, FinishReason
from orchestrator.request import GenerationRequest

_SEED = (1 << 64) - 1


class Prompt(NamedTuple):
    """A text to go on with; with a layout, for an any-subset target, one whose holes are filled."""

    tokens: tuple[int, ...]
    layout: Layout | None = None


async def answer(
    request: GenerationFields,
    prompts: Sequence[Prompt],
    generations: Decoding,
    kind: BodyKind,
    writer: Callable[[Prompt], ChoiceWriter],
    last_event: str | None = None,
) -> Response:
    """Answer each prompt n times; with stream=true in events as tokens are committed.

    writer makes what writes one choice, given its prompt; last_event is the id of the last event
    that the client saw of an answer that was cut. Raise InvalidRequest naming a field.
    """
    begun = begun_by(request, len(prompts) * request.samples, last_event)
    if begun is not None:
        request = request.model_copy(update={"seed": begun.seed})
    asked = answers_of(request, prompts, generations)
    config = request.speculative.applied_to(generations.config)
    written = [writer(prompt) for prompt in prompts for _ in range(request.samples)]
    prompt_tokens = sum(len(prompt.tokens) for prompt in prompts)
    body = Answer(kind, generations.name, request, prompt_tokens, written, generations.tokenizer)
    stream = named(generations.deltas(asked, config), request)
    if request.without_text:
        stream = prompts_alone(stream)
    if begun is not None:
        if config.acceptance is not Acceptance.COUPLED:
            raise InvalidRequest(
                "only answers of the acceptance rule coupled can be resumed", param="stream_options"
            )
        stream = resumed(stream, begun.sent, written)
    if request.stream:
        if request.stream_options is not None and request.stream_options.cadence == "token":
            stream = smoothed(stream, time.monotonic)
        first = await anext(stream)  # an error before the first token is an HTTP status
        return StreamingResponse(body.events(first, stream, begun), media_type="text/event-stream")
    whole = [CompletionBuffer() for _ in asked]
    async with aclosing(stream):
        async for index, delta in stream:
            whole[index].add(delta)
    chosen = best(whole, request.candidates, request.samples)
    unseen = sum(len(each.tokens) for each in whole) - sum(len(each.tokens) for each in chosen)
    return JSONResponse(body.whole(chosen, unseen))


def begun_by(request: GenerationFields, answers: int, last_event: str | None) -> EventId | None:
    """Return what was sent of a stream whose events have ids, None for any other answer.

    Raise InvalidRequest for an id that is none, or is another request's.
    """
    options = request.stream_options
    if options is None or not options.resumable:
        if last_event is not None and request.stream:
            raise InvalidRequest(
                f"{FIELD} goes with stream_options.resumable", param="stream_options"
            )
        return None
    if last_event is None:
        seed = secrets.randbits(63) if request.seed is None else request.seed & _SEED
        return EventId(seed, (Sent(),) * answers)
    begun = read_id(last_event, answers)
    if request.seed is not None and request.seed & _SEED != begun.seed:
        raise InvalidRequest(f"{FIELD} is of a request with another seed", param="seed")
    return begun


async def named(
    stream: AsyncGenerator[tuple[int, Delta]], request: GenerationFields
) -> AsyncGenerator[tuple[int, Delta]]:
    """Yield what stream does; an error that names a field names the client's own."""
    async with aclosing(stream):
        try:
            async for item in stream:
                yield item
        except InvalidRequest as error:
            field = request.field_of(error.param)
            if field is None or error.param is None or field == error.param:
                raise
            message = str(error).replace(error.param, field)
            raise InvalidRequest(message, param=field) from None


async def prompts_alone(
    stream: AsyncGenerator[tuple[int, Delta]],
) -> AsyncGenerator[tuple[int, Delta]]:
    """Yield the stream's part on the prompts, without the text behind them."""
    async with aclosing(stream):
        async for index, delta in stream:
            finish = None if delta.finish_reason is None else FinishReason.LENGTH
            yield (
                index,
                replace(delta, text="", tokens=(), rounds=(), finish_reason=finish),
            )


def best(
    answers: Sequence[CompletionBuffer], candidates: int, samples: int
) -> list[CompletionBuffer]:
    """Return each prompt's likeliest answers by their tokens' mean logprob, the best first."""
    if candidates == samples:
        return list(answers)
    prompts = range(0, len(answers), candidates)
    ranked = (sorted(answers[at : at + candidates], key=_mean, reverse=True) for at in prompts)
    return [answer for each in ranked for answer in each[:samples]]


def _mean(answer: CompletionBuffer) -> float:
    logprobs = [each.logprobs.logprob for each in answer.tokens if each.logprobs is not None]
    return sum(logprobs) / len(logprobs) if logprobs else -math.inf


def answers_of(
    request: GenerationFields, prompts: Sequence[Prompt], generations: Decoding
) -> list[Answering]:
    """Return what is to be decoded: n answers of each prompt; raise InvalidRequest."""
    tenant = group_of(KEY_NAME.get(), request.cache_salt or "") or ""
    # Whom the request's sessions count for: itself, and its tenant.
    groups = (f"request-{uuid.uuid4().hex}", *([tenant] if tenant else ()))
    return [
        _answering(request, prompt, sample, generations, groups, tenant)
        for prompt in prompts
        for sample in range(request.candidates)
    ]


def _answering(
    request: GenerationFields,
    prompt: Prompt,
    sample: int,
    generations: Decoding,
    groups: tuple[str, ...],
    tenant: str,
) -> Answering:
    target, vocab_size = generations.target, generations.tokenizer.get_vocab_size()
    logits = request.logits()
    check_logits(logits, vocab_size)
    stops = tuple(request.stop_token_ids or ())
    check_tokens("stop_token_ids", stops, vocab_size)
    tokens, layout = prompt
    if layout is None:
        length = request.length(len(tokens), target.max_len)
        layout = with_hole(len(tokens), length, 0) if target.any_subset else None
    else:
        length = layout.length - len(tokens)
    if layout is None and not request.ignore_eos:
        stops += target.eos_token_ids
    generation = GenerationRequest(
        session_id=uuid.uuid4().hex,
        prompt=tokens,
        sampling=request.sampling(sample),
        max_new_tokens=length,
        stop_token_ids=stops,
        speculate=request.speculative.enabled,
        logits=logits,
        logprobs=_logprobs(request),
        grammar=request.grammar(),
        prompt_logprobs=request.with_prompt and request.top_logprobs_asked is not None,
        cache_salt=salt_of(KEY_NAME.get(), request.cache_salt or ""),
        groups=groups,
        tenant=tenant,
        layout=layout,
        unmasking=request.unmasked_by,
        block_states=request.speculative.detail,
    )
    return Answering(generation, Stops(request.stops, frozenset(stops), request.min_tokens or 0))


def _logprobs(request: GenerationFields) -> int | None:
    """Return how many logprobs the verifier is asked for: candidates are ranked by theirs."""
    asked = request.top_logprobs_asked
    return 0 if asked is None and request.candidates > request.samples else asked
