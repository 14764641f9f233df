"""What runs a request's sessions, whichever API it came by: from records to deltas of text."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from tokenizers import Tokenizer

from deployments.canary.arms import Arms
from deployments.ingress.stream.ended import Ended
from deployments.ingress.stream.merge import merged
from deployments.ingress.stream.sse import Delta, Stops, deltas
from deployments.ingress.stream.stopping import Stopping
from deployments.ingress.stream.turns import Turns
from foredraft.types import ModelInfo
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import Event, decoding_mode, live_events
from orchestrator.ports import VerifierPort
from orchestrator.request import GenerationRequest


class Decoding(Protocol):
    """What decodes answers of one target.

    name is what clients call the target, config how it decodes where a request sets nothing else.
    """

    name: str
    target: ModelInfo
    tokenizer: Tokenizer
    config: OrchestratorConfig
    stopping: Stopping

    def deltas(
        self, answers: Sequence[Answering], config: OrchestratorConfig
    ) -> AsyncGenerator[tuple[int, Delta]]:
        """Yield what is added to each answer, with its number; closing this ends their sessions.

        Raise Unavailable once the server stops.
        """


class Answering(NamedTuple):
    """One answer to decode, and what ends its text."""

    generation: GenerationRequest
    stops: Stops


class Generations:
    """Decodes answers.

    name is what clients call the target, config how it decodes where a request sets nothing else,
    arms where drafts come from; both may be replaced, for the requests to come. ended is given the
    prompt's length and what came of it, once for each session, at its end.
    """

    def __init__(
        self,
        name: str,
        target: ModelInfo,
        tokenizer: Tokenizer,
        config: OrchestratorConfig,
        arms: Arms,
        verifiers: VerifierPort,
        ended: Callable[[int, Ended], None],
    ) -> None:
        self.name, self.target, self.tokenizer, self.config = name, target, tokenizer, config
        self.stopping = Stopping()
        self.arms, self._verifiers = arms, verifiers
        self._ended = ended
        self._states = ControllerStates()

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

    def _deltas(
        self, answer: Answering, config: OrchestratorConfig, turns: Turns
    ) -> AsyncGenerator[Delta]:
        generation, arm = answer.generation, self.arms.choose()
        state = self._states.of((arm.name, config.kind(generation.sampling)))

        def begin(within_s: float, may_wait: bool) -> AsyncGenerator[Event | None]:
            asked = replace(generation, timeout_s=within_s, may_wait=may_wait)
            ports = arm.drafters, self._verifiers
            quiet_s = config.keepalive_s
            return live_events(asked, *ports, config, time.monotonic, state, quiet_s)

        mode = decoding_mode(generation, config)

        def ended(ended: Ended) -> None:
            self._ended(len(generation.prompt), ended)
            arm.ended(ended.report, ended.seconds)

        # Without a salt the count would be about other clients' prompts.
        counts = bool(generation.cache_salt)
        events = turns.events(begin)
        return deltas(events, self.tokenizer, answer.stops, mode, ended, counts_cached=counts)
