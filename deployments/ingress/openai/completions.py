"""What answers completion requests: from the HTTP body over the orchestrator to the answer's."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from fastapi.responses import JSONResponse, Response, StreamingResponse
from tokenizers import Tokenizer

from deployments.ingress.openai.answer import CompletionResponse
from deployments.ingress.openai.api import DEFAULT_MAX_TOKENS, CompletionRequest
from deployments.ingress.openai.echo import ChoiceWriter
from deployments.ingress.openai.prompts import Prompts
from deployments.ingress.stream.merge import merged
from deployments.ingress.stream.sse import CompletionBuffer, Delta, Stops, deltas
from deployments.ingress.stream.stopping import Stopping
from foredraft.limits import check_logits, check_tokens
from foredraft.types import ModelInfo
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import decoding_mode, generate
from orchestrator.ports import DrafterPort, VerifierPort
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest


class Completions:
    """Validates requests, runs their sessions, writes their answers.

    name is what clients call the target, ended is given the report of each session at its end.
    """

    def __init__(
        self,
        name: str,
        target: ModelInfo,
        tokenizer: Tokenizer,
        config: OrchestratorConfig,
        drafters: DrafterPort,
        verifiers: VerifierPort,
        ended: Callable[[SpeculationReport], None],
    ) -> None:
        self.name = name
        self.stopping = Stopping()
        self._target = target
        self._tokenizer = tokenizer
        self._prompts = Prompts(tokenizer, target.max_len)
        self._config = config
        self._drafters, self._verifiers = drafters, verifiers
        self._ended = ended
        self._states = ControllerStates()

    async def answer(self, request: CompletionRequest) -> Response:
        """Complete prompts, n times each; with stream=true in events as tokens are committed."""
        self.stopping.check()
        request.check(self.name)
        prompts = [await self._prompts.tokens(prompt) for prompt in request.prompts]
        asked = [
            self._generation(request, prompt, sample)
            for prompt in prompts
            for sample in range(request.samples)
        ]
        config = request.speculative.applied_to(self._config)
        with_logprobs = request.logprobs is not None
        written = [
            ChoiceWriter(self._tokenizer, one.prompt if request.echo else (), with_logprobs)
            for one in asked
        ]
        answer = CompletionResponse(self.name, request, sum(map(len, prompts)), written)
        stream = self.stopping.bounded(
            merged([self._deltas(request, generation, config) for generation in asked])
        )
        if request.stream:
            first = await anext(stream)  # an error before the first token is an HTTP status
            return StreamingResponse(answer.events(first, stream), media_type="text/event-stream")
        whole = [CompletionBuffer() for _ in asked]
        async with aclosing(stream):
            async for index, delta in stream:
                whole[index].add(delta)
        return JSONResponse(answer.whole(whole))

    def _deltas(
        self, request: CompletionRequest, generation: GenerationRequest, config: OrchestratorConfig
    ) -> AsyncGenerator[Delta]:
        """Return one answer, as it is decoded."""
        events = generate(
            generation,
            self._drafters,
            self._verifiers,
            config,
            time.monotonic,
            self._states.of(config.kind(generation.sampling)),
        )
        stops = Stops(request.stops, frozenset(generation.stop_token_ids), request.min_tokens or 0)
        mode = decoding_mode(generation, config)
        return deltas(events, self._tokenizer, stops, mode, self._ended)

    def _generation(
        self, request: CompletionRequest, prompt: tuple[int, ...], sample: int
    ) -> GenerationRequest:
        vocab_size, logits = self._tokenizer.get_vocab_size(), request.logits()
        check_logits(logits, vocab_size)
        stops = tuple(request.stop_token_ids or ())
        check_tokens("stop_token_ids", stops, vocab_size)
        if not request.ignore_eos:
            stops += self._target.eos_token_ids
        return GenerationRequest(
            session_id=uuid.uuid4().hex,
            prompt=prompt,
            sampling=request.sampling(sample),
            max_new_tokens=request.max_tokens or DEFAULT_MAX_TOKENS,
            stop_token_ids=stops,
            speculate=request.speculative.enabled,
            logits=logits,
            logprobs=request.logprobs,
            grammar=request.grammar(),
            prompt_logprobs=bool(request.echo) and request.logprobs is not None,
            cache_salt=request.cache_salt or "",
        )
