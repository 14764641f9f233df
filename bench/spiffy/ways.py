"""The ways of denoising that are compared, over the served engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from denoiser_service.engine import DenoiserEngine
from foredraft.decoding.block_state import State, hash_state, opened
from foredraft.decoding.prefix import hash_prefix
from foredraft.denoising import Advance, Advanced, DenoiseOpen, Dynamic, Static, Unmasking
from foredraft.limits import MAX_CALLS
from foredraft.types import Base, SamplingParams


class Way(NamedTuple):
    """Unmasking, and how many drafted states a call evaluates (D*).

    Priced, these are the most, and the engine buys those that are worth their rows. Printed, they
    are ranked and pruned as the paper does.
    """

    unmasking: Unmasking
    drafts: int
    priced: bool = False
    printed: bool = False

    @property
    def name(self) -> str:
        """How tables name the unmasking."""
        if isinstance(self.unmasking, Static):
            return f"static, {self.unmasking.per_step} a step"
        return f"dynamic, {self.unmasking.threshold:g}"

    @property
    def vanilla(self) -> Way:
        """The same unmasking without drafts."""
        return Way(self.unmasking, 0)


ONE_BY_ONE = Way(Static(1), 0)
DYNAMIC = Way(Dynamic(0.9), 0)


class Denoised(NamedTuple):
    """Texts denoised at once: their new tokens, calls and steps of all, seconds in all, in the
    model, and for drafts.
    """

    texts: tuple[tuple[int, ...], ...]
    calls: int
    steps: int
    seconds: float
    model_s: float
    draft_s: float


@dataclass(slots=True)
class _Open:
    """A session of the engine: its text's whole blocks and the state of the next one."""

    handle: int
    name: str
    prompt: int
    tokens: list[int]
    state: State
    calls: int = 0
    steps: int = 0

    def take(self, advanced: Advanced) -> None:
        """Go on by an answer."""
        self.tokens += advanced.committed
        self.state = advanced.block
        self.calls += advanced.calls
        self.steps += advanced.steps

    def advance(self, block_length: int) -> Advance:
        """Return the request for as many calls as may be asked for."""
        start = len(self.tokens)
        named = hash_state(hash_prefix(self.tokens), start // block_length, self.state)
        return Advance(Base(self.name, self.calls, start, named), MAX_CALLS)


def denoise(
    engine: DenoiserEngine,
    prompts: Sequence[tuple[int, ...]],
    way: Way,
    sampling: Sequence[SamplingParams],
    max_tokens: int,
) -> Denoised:
    """Denoise up to max_tokens tokens after each prompt, all at once."""
    began, counts = time.perf_counter(), engine.counts
    model_s, draft_s = counts.seconds, counts.draft_seconds
    sessions: dict[int, _Open] = {}
    for number, (prompt, sampled) in enumerate(zip(prompts, sampling, strict=True)):
        session = _opened(engine, f"bench-{number}", prompt, way, sampled, max_tokens)
        sessions[session.handle] = session
        engine.submit(session.handle, session.advance(engine.info.block_length))
    running = set(sessions)
    while running:
        for handle, result in engine.step():
            assert isinstance(result, Advanced)
            sessions[handle].take(result)
            if result.block:
                engine.submit(handle, sessions[handle].advance(engine.info.block_length))
            else:
                running.remove(handle)
    for handle in sessions:
        engine.close(handle)
    done = sessions.values()
    return Denoised(
        tuple(tuple(each.tokens[each.prompt :][:max_tokens]) for each in done),
        sum(each.calls for each in done),
        sum(each.steps for each in done),
        time.perf_counter() - began,
        counts.seconds - model_s,
        counts.draft_seconds - draft_s,
    )


def _opened(
    engine: DenoiserEngine,
    name: str,
    prompt: tuple[int, ...],
    way: Way,
    sampling: SamplingParams,
    max_tokens: int,
) -> _Open:
    request = DenoiseOpen(name, prompt, sampling, max_tokens, way.unmasking, way.drafts)
    length = engine.info.block_length
    start = len(prompt) - len(prompt) % length
    state = opened(prompt[start:], length)
    return _Open(engine.open(request), name, len(prompt), list(prompt[:start]), state)
