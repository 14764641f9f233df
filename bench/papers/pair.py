"""The embedded pair in this process: its ways of decoding, with the drafters that they need."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from bench.compare.rows import Run
from bench.papers.timed import TimedDrafter
from bench.papers.ways import Decoded, Promise, Spent, Way
from deployments.config import ForedraftConfig
from deployments.in_process import Engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from drafter_service.batcher import Batcher
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine, load_model
from drafter_service.models.port import DiffusionLM
from foredraft.messages import DraftOpen, DraftOpened
from foredraft.types import Acceptance, Proposal, SamplingParams
from orchestrator.config import NgramConfig, OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.in_process import LocalDrafter
from orchestrator.ports import DrafterPort
from orchestrator.request import GenerationRequest, StepEvent
from verifier_service.load import load_target
from verifier_service.models.paged import PagedModel

# A drafter that is opened for one table serves one session at a time.
_CACHE_TOKENS = 4096
_PROMISES = {
    Acceptance.COUPLED: Promise.TOKENS,
    Acceptance.REJECTION: Promise.LAW,
    Acceptance.BLOCK: Promise.LAW,
    Acceptance.L2R: Promise.NONE,
}
# A slow drafter is measured, not given up: its cost belongs to the figure.
_PATIENT = {"draft_deadline_ms": 10_000.0, "drafter_timeout_s": 20.0}


class Pair:
    """One verifier, the drafter as it is served, and others of its model opened for a table.

    stack closes those. block is how many tokens its paths have at most. With text_alone the drafter
    needs nothing but text, so that it can draft behind its own drafts.
    """

    def __init__(
        self,
        loaded: Engines,
        config: ForedraftConfig,
        opened: DraftOpened,
        stack: AsyncExitStack,
    ) -> None:
        self._loaded, self._stack = loaded, stack
        self._drafter_config, self._verifier_config = (
            config.drafter.service,
            config.verifier.service,
        )
        self.target = self._verifier_config.model
        self.block = opened.max_draft_tokens
        self.text_alone = not opened.model.features_hash
        self._models: tuple[DiffusionLM, PagedModel] | None = None
        self._config = config.orchestrator.model_copy(update=_PATIENT | {"ngram": NgramConfig()})
        self.plain = self.way("plain", enabled=False)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens."""
        return tuple(self._loaded.tokenizer.encode(text, add_special_tokens=False).ids)

    def models(self) -> tuple[DiffusionLM, PagedModel]:
        """Return drafter and target as bare models, a second copy of each."""
        if self._models is None:
            self._models = load_model(self._drafter_config), load_target(self._verifier_config)
        return self._models

    async def drafter(self, cps: dict[str, Any] | None = None, **changes: Any) -> DrafterPort:
        """Open one more drafter, changed in its configuration, until the stack is closed."""
        base = self._drafter_config
        search = base.cps.model_copy(update=cps or {})
        changed = {"cps": search, "cache_tokens": _CACHE_TOKENS} | changes
        return await self._stack.enter_async_context(_running(base.model_copy(update=changed)))

    def way(self, name: str, drafter: DrafterPort | None = None, **options: Any) -> Way:
        """Return a way: the request's `speculative` object, and the drafter if not the served."""
        asked = SpeculativeOptions.model_validate(options)
        config = asked.applied_to(self._config)
        # Requests of one kind share it, as they do where they are served.
        state = ControllerState()
        port = drafter or self._loaded.drafter
        decode = partial(self._decode, port, config, asked.enabled, state)
        return Way(name, decode, _PROMISES[config.acceptance])

    async def _decode(
        self,
        drafter: DrafterPort,
        config: OrchestratorConfig,
        speculate: bool,
        state: ControllerState,
        prompt: tuple[int, ...],
        sampling: SamplingParams,
        max_tokens: int,
    ) -> Decoded:
        name = uuid.uuid4().hex
        request = GenerationRequest(
            session_id=name,
            prompt=prompt,
            sampling=sampling,
            max_new_tokens=max_tokens,
            stop_token_ids=self._loaded.eos,
            speculate=speculate,
            # Each run is measured with the reading of its prompt.
            cache_salt=name,
        )
        timed = TimedDrafter(drafter)
        tokens: list[int] = []
        rounds: list[Spent] = []
        verifying_us = broken = 0
        started = time.perf_counter()
        events = generate(request, timed, self._loaded.verifier, config, state=state)
        async for event in events:
            if isinstance(event, StepEvent):
                tokens += [committed.token for committed in event.tokens]
                seconds = time.perf_counter() - started
                verifying_us += event.stats.verify_timings.compute_us
                broken += event.stats.num_accepted < event.stats.num_draft_tokens
                rounds.append(_spent(event))
            else:
                report = event.report
        run = Run(
            tuple(tokens),
            seconds,
            report.num_accepted,
            report.num_draft_tokens,
            report.draft_rounds,
        )
        return Decoded(
            run,
            report.accepted_histogram,
            broken,
            timed.compute_us / 1e6,
            verifying_us / 1e6,
            tuple(rounds),
            timed.generated,
        )


def _spent(event: StepEvent) -> Spent:
    stats = event.stats
    return Spent(
        stats.decision.k,
        stats.num_draft_tokens,
        len(event.tokens),
        stats.draft_wait_s,
        stats.verify_s,
    )


async def opened_by(drafter: DrafterPort) -> DraftOpened:
    """Return a drafter's description of itself to a session that wants paths."""
    request = DraftOpen("papers", (1,), SamplingParams(), Proposal.ARGMAX, 64)
    stream = await drafter.open(request)
    await stream.close()
    return stream.opened


@asynccontextmanager
async def _running(config: DrafterConfig) -> AsyncIterator[DrafterPort]:
    batcher = Batcher(partial(load_engine, config), config.max_queue)
    await batcher.start()
    try:
        yield LocalDrafter(batcher)
    finally:
        await batcher.stop()
