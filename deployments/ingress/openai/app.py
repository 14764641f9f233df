"""The HTTP ingress: OpenAI completions over the orchestrator."""

# Serve pickles the decorated class by value at once: annotations must not be postponed, and what
# its methods use must be defined above it or imported.

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from ray import serve
from ray.serve.handle import DeploymentHandle
from tokenizers import Tokenizer

from deployments.config import ForedraftConfig
from deployments.ingress.openai import errors
from deployments.ingress.openai.answer import Answer
from deployments.ingress.openai.api import DEFAULT_MAX_TOKENS, CompletionRequest, ModelNotFound
from deployments.ingress.openai.echo import Written
from deployments.ingress.stream.merge import merged
from deployments.ingress.stream.sse import Collected, Delta, Stops, deltas
from deployments.observability.metrics import Metrics
from deployments.serve.platform import pin
from deployments.serve.routing import PinnedReplicas
from drafter_service.client import DrafterClient
from foredraft.errors import InvalidRequest
from foredraft.limits import check_logits, check_tokens
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import decoding_mode, generate
from orchestrator.request import GenerationRequest
from verifier_service.client import VerifierClient

_STATUS_TIMEOUT_S = 2.0

MAX_BODY_BYTES = 4 << 20

app = FastAPI(title="Foredraft", max_body_size=MAX_BODY_BYTES)
errors.install(app)


@serve.ingress(app)
class Ingress:
    """Parses and validates requests, runs their sessions, streams their text."""

    def __init__(
        self, config: ForedraftConfig, drafters: DeploymentHandle, verifiers: DeploymentHandle
    ) -> None:
        pin(config.ingress.pin_cpus)
        self._config = config
        self._tokenizer = Tokenizer.from_file(str(config.tokenizer / "tokenizer.json"))
        self._eos = self._tokenizer.token_to_id("<|eos|>")
        self._handles = {"drafter": drafters, "verifier": verifiers}
        self._drafters = PinnedReplicas(drafters, DrafterClient)
        self._verifiers = PinnedReplicas(verifiers, VerifierClient)
        self._states = ControllerStates()
        self._metrics = Metrics()
        self._started = int(time.time())

    @app.post("/v1/completions")
    async def completions(self, request: CompletionRequest) -> Response:
        """Complete prompts, n times each; with stream=true one event per committed block."""
        request.check(self._config.model_name)
        prompts = [self._tokens(prompt) for prompt in request.prompts]
        asked = [
            self._generation(request, prompt, sample)
            for prompt in prompts
            for sample in range(request.samples)
        ]
        config = request.speculative.applied_to(self._config.orchestrator)
        told = request.logprobs is not None
        written = [
            Written(self._tokenizer, one.prompt if request.echo else (), told) for one in asked
        ]
        answer = Answer(self._config.model_name, request, sum(map(len, prompts)), written)
        stream = merged([self._deltas(request, generation, config) for generation in asked])
        if request.stream:
            first = await anext(stream)  # an error before the first token is an HTTP status
            return StreamingResponse(answer.events(first, stream), media_type="text/event-stream")
        whole = [Collected() for _ in asked]
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
        return deltas(events, self._tokenizer, stops, mode, self._metrics.ended)

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        """The one model that is served."""
        return {"object": "list", "data": [self._model()]}

    @app.get("/v1/models/{name:path}")
    async def model(self, name: str) -> dict[str, Any]:
        """One model by name."""
        if name != self._config.model_name:
            raise ModelNotFound(f"model {name!r} does not exist", param="model")
        return self._model()

    @app.get("/health")
    async def health(self) -> JSONResponse:
        """200 when a verifier answers; a missing drafter only means plain decoding."""
        verifier, drafter = await asyncio.gather(self._status("verifier"), self._status("drafter"))
        if verifier is None:
            body = errors.error_body("Loading model", "unavailable_error", 503)
            return JSONResponse(body, 503, headers={"retry-after": "1"})
        return JSONResponse({"status": "ok", "verifier": verifier, "drafter": drafter})

    def _model(self) -> dict[str, Any]:
        name = self._config.model_name
        return {"id": name, "object": "model", "created": self._started, "owned_by": "foredraft"}

    async def _status(self, service: str) -> dict[str, Any] | None:
        call = self._handles[service].status.remote()
        try:
            return dict(await asyncio.wait_for(call, _STATUS_TIMEOUT_S))
        except Exception:  # noqa: BLE001 - whatever Ray raises, the replica cannot answer
            return None

    def _tokens(self, prompt: str | list[int]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            tokens = tuple(self._tokenizer.encode(prompt).ids)
        else:
            check_tokens("prompt", prompt, self._tokenizer.get_vocab_size())
            tokens = tuple(prompt)
        if not tokens:
            raise InvalidRequest("prompt is empty", param="prompt")
        return tokens

    def _generation(
        self, request: CompletionRequest, prompt: tuple[int, ...], sample: int
    ) -> GenerationRequest:
        vocab_size, logits = self._tokenizer.get_vocab_size(), request.logits()
        check_logits(logits, vocab_size)
        stops = tuple(request.stop_token_ids or ())
        check_tokens("stop_token_ids", stops, vocab_size)
        if self._eos is not None and not request.ignore_eos:
            stops += (self._eos,)
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
