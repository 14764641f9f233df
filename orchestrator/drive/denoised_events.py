"""A request to a block-diffusion target, and its answers as the events of any other target's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from foredraft.denoising import DenoiseOpen, Unmasking
from foredraft.errors import DeadlineExceeded, InvalidRequest
from foredraft.types import Committed, LogitsParams, Origin, Timings
from orchestrator.config import DenoisingConfig
from orchestrator.drive.channel import BoundedChannel
from orchestrator.drive.denoising import denoise
from orchestrator.drive.pipeline import Event
from orchestrator.ports import DenoiserPort
from orchestrator.report import RoundStats, StatsAccumulator
from orchestrator.request import BlockEvent, GenerationRequest, StepEvent, Summary
from orchestrator.session.denoise import DenoiseSession
from orchestrator.waiting_line import Admit, at_once

DenoisedEvent = Event | BlockEvent

# Events that may be unread before a session waits for its reader.
_READ_AHEAD = 16


def denoise_open(request: GenerationRequest, unmasking: Unmasking, drafts: int) -> DenoiseOpen:
    """Return what opens a request's session; without speculation it has no drafts.

    Raise InvalidRequest naming the first field that only a left-to-right target serves.
    """
    logits, neutral = request.logits, LogitsParams()
    excluded = {
        "logprobs": request.logprobs is not None,
        "grammar": request.grammar is not None,
        "layout": request.layout is not None,
        "top_k": request.sampling.top_k != 0,
        "top_p": request.sampling.top_p != 1,
        "min_p": request.sampling.min_p != 0,
        **{
            name: getattr(logits, name) != getattr(neutral, name) for name in LogitsParams.__slots__
        },
    }
    for name, is_set in excluded.items():
        if is_set:
            raise InvalidRequest(f"a block-diffusion model takes no {name}", param=name)
    return DenoiseOpen(
        request.session_id,
        request.prompt,
        request.sampling,
        request.max_new_tokens,
        unmasking,
        drafts if request.speculate else 0,
        request.stop_token_ids,
        request.cache_salt,
        request.groups,
    )


async def denoised_events(
    opened: DenoiseOpen,
    port: DenoiserPort,
    config: DenoisingConfig,
    timeout_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    quiet_s: float | None = None,
    admit: Admit = at_once,
    *,
    block_states: bool = False,
) -> AsyncGenerator[DenoisedEvent | None, None]:
    """Yield a StepEvent for tokens that are final, then one Summary; None after quiet_s seconds.

    With block_states, each call is a message of its own, and a BlockEvent has its outcome.
    Every token counts as plainly decoded. Closing this ends the session. Raises what `denoise`
    does, and DeadlineExceeded after timeout_s.
    """
    channel: BoundedChannel[DenoisedEvent] = BoundedChannel(_READ_AHEAD, quiet_s=quiet_s)

    states = block_states
    config = config.model_copy(update={"calls": 1}) if states else config

    async def drive() -> None:
        try:
            async with asyncio.timeout(timeout_s):
                async with aclosing(_events(opened, port, config, clock, admit)) as events:
                    async for event in events:
                        if states or not isinstance(event, BlockEvent):
                            await channel.put(event)
        except TimeoutError:
            raise DeadlineExceeded(f"the request did not finish within {timeout_s} s") from None

    task = asyncio.create_task(drive())
    task.add_done_callback(lambda _: channel.end())
    try:
        async for event in channel:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _events(
    opened: DenoiseOpen,
    port: DenoiserPort,
    config: DenoisingConfig,
    clock: Callable[[], float],
    admit: Admit,
) -> AsyncGenerator[DenoisedEvent, None]:
    session, stats = DenoiseSession(opened), StatsAccumulator()
    started = before = clock()
    compute_us = calls = number = 0
    async with aclosing(denoise(session, port, config, clock, admit)) as answers:
        async for tokens, answer in answers:
            compute_us, calls = compute_us + answer.timings.compute_us, calls + answer.calls
            if tokens:
                now = clock()
                timings = Timings(0, compute_us, answer.timings.batch_rows, calls)
                round_stats = RoundStats(
                    number, 0, 0, began_s=before - started, verify_s=now - before,
                    verify_timings=timings,
                )  # fmt: skip
                committed = tuple(Committed(token, Origin.PLAIN) for token in tokens)
                stats.add(committed, round_stats)
                yield StepEvent(committed, round_stats)
                before, compute_us, calls, number = now, 0, 0, number + 1
            if session.finish is None:
                yield BlockEvent(*session.block)
    assert session.finish is not None
    yield Summary(session.finish, stats.report(clock() - started, 0, 0))
