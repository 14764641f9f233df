"""What runs the sessions of a block-diffusion target, beside the one that reads left to right."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from tokenizers import Tokenizer

from deployments.denoiser_pool import DenoiserPool
from deployments.ingress.generations import Answering, Generations
from deployments.ingress.stream.ended import Ended
from deployments.ingress.stream.merge import merged
from deployments.ingress.stream.sse import Delta, deltas
from deployments.ingress.stream.stopping import Stopping
from deployments.ingress.stream.turns import Turns
from deployments.preflight import check_tokenizer
from foredraft.errors import InvalidRequest
from foredraft.types import Acceptance, ModelInfo
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.denoised_events import DenoisedEvent, denoise_open, denoised_events
from orchestrator.ports import DenoiserPort
from orchestrator.report import PLAIN
from orchestrator.waiting_line import WaitingLine


class DenoisedGenerations:
    """Decodes answers, as generations.Decoding does.

    config is the server's, of which requests' time limits and signs of life hold here, too; pool
    is which slots a step fills, and how much is drafted.
    """

    def __init__(
        self,
        name: str,
        target: ModelInfo,
        tokenizer: Tokenizer,
        config: OrchestratorConfig,
        pool: DenoiserPool,
        denoisers: DenoiserPort,
        stopping: Stopping,
        ended: Callable[[int, Ended], None],
    ) -> None:
        self.name, self.target, self.tokenizer, self.config = name, target, tokenizer, config
        self.stopping = stopping
        self._pool, self._denoisers = pool, denoisers
        self._ended = ended
        self._line = WaitingLine()

    def deltas(
        self, answers: Sequence[Answering], config: OrchestratorConfig
    ) -> AsyncGenerator[tuple[int, Delta]]:
        """Yield what is added to each answer, with its number; closing this ends their sessions.

        Raise Unavailable once the server stops.
        """
        within = [answer.generation.timeout_s for answer in answers]
        turns = Turns(min([config.request_timeout_s, *(s for s in within if s is not None)]))
        return self.stopping.bounded(
            merged([self._deltas(each, config, turns) for each in answers])
        )

    async def _deltas(
        self, answer: Answering, config: OrchestratorConfig, turns: Turns
    ) -> AsyncGenerator[Delta]:
        if config.acceptance is not Acceptance.COUPLED:
            raise InvalidRequest(
                "a block-diffusion model has one rule", param="speculative.acceptance"
            )
        generation, pool = answer.generation, self._pool
        unmasking = generation.unmasking or pool.unmasking.rule()
        opened = denoise_open(generation, unmasking, pool.drafts)

        def begin(within_s: float, may_wait: bool) -> AsyncGenerator[DenoisedEvent | None]:
            wait_s = pool.decoding.admission_wait_s if may_wait else 0.0
            return denoised_events(
                opened,
                self._denoisers,
                pool.decoding,
                within_s,
                time.monotonic,
                config.keepalive_s,
                partial(self._line.admit, tenant=generation.tenant, wait_s=wait_s),
                block_states=generation.block_states,
            )

        def ended(ended: Ended) -> None:
            self._line.ended()
            self._ended(len(generation.prompt), ended)

        found = deltas(turns.events(begin), self.tokenizer, answer.stops, PLAIN, ended)
        async with aclosing(found):
            async for delta in found:
                yield delta


def denoised(
    pool: DenoiserPool,
    target: ModelInfo,
    denoisers: DenoiserPort,
    beside: Generations,
    ended: Callable[[int, Ended], None],
) -> DenoisedGenerations:
    """Return what decodes with a pool's model beside another target.

    Raise ConfigError unless the pool's tokenizer is the model's.
    """
    file = pool.tokenizer_file
    check_tokenizer(file, target.tokenizer_hash, target.name)
    tokenizer, stopping = Tokenizer.from_file(str(file)), beside.stopping
    return DenoisedGenerations(
        pool.name, target, tokenizer, beside.config, pool, denoisers, stopping, ended
    )
