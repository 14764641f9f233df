"""The HTTP routes, over whatever answers completions and conversations."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse, Response

from deployments.ingress.doors.body_limit import BodyLimit
from deployments.ingress.generations import Decoding, Generations
from deployments.ingress.openai import errors
from deployments.ingress.openai.chat.handler import Chat
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.completions.handler import Completions
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.errors import ModelNotFound
from deployments.ingress.openai.prompts import Prompts
from deployments.ingress.openai.schemas import answers, description
from deployments.ingress.openai.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from foredraft import __version__
from foredraft.chat_template import read_chat_template
from foredraft.vocabulary import spelling

MAX_BODY_BYTES = 4 << 20
# The id of the last event that a client saw of a stream that was cut.
LastEvent = Annotated[str | None, Header(max_length=2048)]


class Handlers(NamedTuple):
    """What answers the routes of one model, whose tokenizer lies in tokenizer_file.

    others complete prompts with further models, by their names.
    """

    tokenizer_file: Path
    generations: Generations
    prompts: Prompts
    completions: Completions
    chat: Chat
    tokens: Tokens
    others: Mapping[str, Completions] = {}


def handlers(
    generations: Generations, tokenizer_file: Path, others: Sequence[Decoding] = ()
) -> Handlers:
    """Return the handlers of a model whose tokenizer, with its chat template, lies there.

    others are further models, which complete prompts and nothing else.

    Raise WeightsError for a chat template that cannot be read.
    """
    prompts = Prompts(generations.tokenizer, generations.target.max_len)
    template = read_chat_template(tokenizer_file.parent)
    chat = Chat(generations, prompts, template, spelling(tokenizer_file))
    completions, tokens = Completions(generations, prompts), Tokens(generations, prompts, chat)
    further = {
        other.name: Completions(other, Prompts(other.tokenizer, other.target.max_len))
        for other in others
    }
    return Handlers(tokenizer_file, generations, prompts, completions, chat, tokens, further)


def application(by: Handlers, health: Callable[[], Awaitable[dict[str, Any] | None]]) -> FastAPI:
    """Return the app of a model; health describes what serves, None while nothing does."""
    app = FastAPI(title="Foredraft", version=__version__, responses=errors.RESPONSES)
    app.add_middleware(BodyLimit, most=MAX_BODY_BYTES)
    errors.install(app)
    description.install(app)
    created = int(time.time())
    described = {
        each: {"id": each, "object": "model", "created": created, "owned_by": "foredraft"}
        for each in (by.generations.name, *by.others)
    }

    @app.post("/v1/completions", responses=description.answering(answers.Completion))
    async def complete(request: CompletionRequest, last_event_id: LastEvent = None) -> Response:
        completions = by.others.get(request.model or "", by.completions)
        return await completions.answer(request, last_event_id)

    @app.post("/v1/chat/completions", responses=description.answering(answers.ChatCompletion))
    async def converse(request: ChatRequest, last_event_id: LastEvent = None) -> Response:
        return await by.chat.answer(request, last_event_id)

    @app.post("/tokenize", responses=description.answering(answers.Tokenized))
    async def tokenize(request: TokenizeRequest) -> dict[str, Any]:
        return await by.tokens.tokenize(request)

    @app.post("/detokenize", responses=description.answering(answers.Detokenized))
    async def detokenize(request: DetokenizeRequest) -> dict[str, Any]:
        return by.tokens.detokenize(request)

    @app.get("/v1/models", responses=description.answering(answers.Models))
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": list(described.values())}

    @app.get("/v1/models/{asked:path}", responses=description.answering(answers.Model))
    async def model(asked: str) -> dict[str, Any]:
        if asked not in described:
            raise ModelNotFound(asked)
        return described[asked]

    @app.get("/version", responses=description.answering(answers.Release))
    async def release() -> dict[str, Any]:
        return {"version": app.version}

    @app.get("/health/live", responses=description.answering(answers.Live))
    async def live() -> dict[str, Any]:
        """200 as long as this replica answers."""
        return {"status": "ok"}

    @app.get("/health", responses=description.answering(answers.Health))
    @app.get("/health/ready", responses=description.answering(answers.Health))
    async def ready() -> JSONResponse:
        """200 when a verifier answers; a missing drafter only means plain decoding."""
        found = await health()
        if found is None:
            body = errors.error_body("Loading model", "unavailable_error", 503)
            return JSONResponse(body, 503, headers={"retry-after": "1"})
        return JSONResponse({"status": "ok", **found})

    return app
