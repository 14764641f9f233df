"""A small client of our own HTTP API, for the demo and the bench: measures what a user sees."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import aiohttp

from foredraft.errors import ForedraftError, from_kind
from foredraft.types import Committed, Origin, SamplingParams

# A text or its token ids.
Prompt = str | Sequence[int]

_TIMEOUT = aiohttp.ClientTimeout(total=600)


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """One finished completion: its tokens, wall time in seconds and speculation report."""

    text: str
    tokens: tuple[int, ...]
    seconds: float
    report: dict[str, Any]


class CompletionClient:
    """Posts completions to one server; use it as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/completions"
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> CompletionClient:
        self._http = aiohttp.ClientSession(timeout=_TIMEOUT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def complete(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        max_tokens: int,
        fields: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> CompletionResult:
        """Return a whole completion.

        options are the request's `speculative` object, fields other ones of its body.
        """
        body = completion_body(prompt, sampling, max_tokens, options) | dict(fields)
        start = time.perf_counter()
        async with self._http.post(self._url, json=body) as response:
            answer = _checked(await response.json())
            seconds = time.perf_counter() - start
        choice = answer["choices"][0]
        return CompletionResult(
            choice["text"],
            tuple(choice["token_ids"]),
            seconds,
            answer["metrics"]["speculative_decoding"],
        )

    async def stream(
        self, prompt: Prompt, sampling: SamplingParams, max_tokens: int, **options: Any
    ) -> AsyncIterator[tuple[str, tuple[Committed, ...]]]:
        """Yield (text, tokens) for each committed block."""
        body = completion_body(prompt, sampling, max_tokens, options | {"detail": True})
        async for choice in self.choices(body):
            pairs = zip(choice["token_ids"], choice["origins"], strict=True)
            yield choice["text"], tuple(Committed(t, Origin(o)) for t, o in pairs)

    async def choices(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the choice of each chunk of a stream; raise its error object's error."""
        async with self._http.post(self._url, json={**body, "stream": True}) as response:
            if response.status != 200:
                _checked(await response.json())
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                yield _checked(json.loads(line[6:]))["choices"][0]


def completion_body(
    prompt: Prompt, sampling: SamplingParams, max_tokens: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON body of a completion; options are its `speculative` object."""
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "return_token_ids": True,
        # What another request has read is not shared: each is measured with all of its own work.
        "cache_salt": uuid.uuid4().hex,
        "speculative": options,
    }


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body, or raise its error object's error."""
    if "error" not in body:
        return body
    raise failure(body["error"])


def failure(error: object) -> ForedraftError:
    """Return what an answer's error object stands for, or anything else that is in its place."""
    if not isinstance(error, dict):
        return ForedraftError(str(error))
    return from_kind(error.get("type", ""), error.get("message", ""), error.get("param"))
