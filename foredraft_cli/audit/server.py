"""`foredraft audit URL`: requests replayed on a running server, with drafts and plainly."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.errors import ConfigError, Unavailable
from foredraft_cli.prompts.held_out import TEMPERATURES
from foredraft_cli.remote import Server


@dataclass(frozen=True, slots=True)
class Parting:
    """Where one request's two texts part: the two tokens, and how far apart their logprobs are.

    margin is None where it was not asked for, or a text has ended.
    """

    request: int
    position: int
    plain: int
    speculative: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """What came of the requests: how many were there, and where the differing ones part."""

    numerics: str
    requests: int
    tokens: int
    drafted: int
    partings: tuple[Parting, ...]

    @property
    def identical(self) -> int:
        """Requests whose tokens were the same both ways."""
        return self.requests - len(self.partings)

    @property
    def bugs(self) -> tuple[Parting, ...]:
        """Partings that the server's measured numerics do not explain."""
        if self.numerics == "exact":
            return self.partings
        tolerance = float(self.numerics.removeprefix("tolerance "))
        return tuple(p for p in self.partings if p.margin is None or p.margin > tolerance)


def recorded(file: Path) -> list[dict[str, Any]]:
    """Return the request bodies of a file of JSON lines; raise ConfigError where it is none."""
    try:
        bodies = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"requests: {file}: {error}", param="requests") from None
    for number, body in enumerate(bodies, 1):
        if not isinstance(body, dict) or not ({"prompt", "messages"} & body.keys()):
            message = f"requests: line {number} of {file} has neither a prompt nor messages"
            raise ConfigError(message, param="requests")
    return bodies


def made(texts: Sequence[str], max_tokens: int) -> list[dict[str, Any]]:
    """Return requests of our own: each text at each temperature, with a seed."""
    return [
        {"prompt": text, "max_tokens": max_tokens, "temperature": temperature, "seed": 1000 + index}
        for index, text in enumerate(texts)
        for temperature in TEMPERATURES
    ]


async def audit(server: Server, bodies: Sequence[dict[str, Any]], streams: int) -> ServerFinding:
    """Return what the requests come to: first plainly, one by one, then with drafts, at once.

    A request without a seed gets one. Raise Unavailable where the server does not serve one.
    """
    numerics = await _numerics(server)
    # Where no difference is allowed, its margin does not matter.
    margins = numerics != "exact"
    seeded = [{"seed": index, **body} for index, body in enumerate(bodies)]
    plain = [await _answer(server, body, False, margins) for body in seeded]
    gate = asyncio.Semaphore(streams)

    async def drafted(body: dict[str, Any]) -> dict[str, Any]:
        async with gate:
            return await _answer(server, body, True, margins)

    fast = await asyncio.gather(*(drafted(body) for body in seeded))
    pairs = enumerate(zip(plain, fast, strict=True))
    partings = tuple(
        found for index, (one, other) in pairs if (found := _parting(index, one, other)) is not None
    )
    tokens = sum(len(choice["token_ids"]) for one in plain for choice in one["choices"])
    return ServerFinding(numerics, len(seeded), tokens, sum(map(_drafted, fast)), partings)


async def _numerics(server: Server) -> str:
    health = await server.get("/health")
    verifier = health.body.get("verifier") if isinstance(health.body, dict) else None
    if not isinstance(verifier, dict):
        raise Unavailable(f"no Foredraft is ready at {server.url}: {health.error}")
    return str(verifier["numerics"])


async def _answer(
    server: Server, body: dict[str, Any], enabled: bool, margins: bool
) -> dict[str, Any]:
    chat = "messages" in body
    asked = {
        **body,
        "stream": False,
        "return_token_ids": True,
        # What is not to be found in a cache is computed both ways.
        "cache_salt": uuid.uuid4().hex,
        "speculative": {**body.get("speculative", {}), "enabled": enabled},
    }
    if margins:
        asked |= {"logprobs": True, "top_logprobs": 0} if chat else {"logprobs": 0}
    asked.pop("stream_options", None)
    reply = await server.post("/v1/chat/completions" if chat else "/v1/completions", asked)
    if reply.status != 200:
        raise Unavailable(f"{server.url} refused a request: {reply.error}")
    found: dict[str, Any] = reply.body
    return found


def _drafted(answer: dict[str, Any]) -> int:
    reports = answer["metrics"]["speculative_decoding"]
    each = reports if isinstance(reports, list) else [reports]
    return sum(report["num_accepted_draft_tokens"] for report in each)


def _parting(index: int, plain: dict[str, Any], fast: dict[str, Any]) -> Parting | None:
    for one, other in zip(plain["choices"], fast["choices"], strict=True):
        mine, others = one["token_ids"], other["token_ids"]
        if mine != others:
            both = enumerate(zip(mine, others, strict=False))
            at = next((i for i, (a, b) in both if a != b), min(len(mine), len(others)))
            end = -1
            first = mine[at] if at < len(mine) else end
            second = others[at] if at < len(others) else end
            return Parting(index, at, first, second, _margin(one, other, at))
    return None


def _margin(plain: dict[str, Any], fast: dict[str, Any], at: int) -> float | None:
    """Return how far the two tokens' logprobs are apart, both given the text before them."""
    found = [_logprob(choice, at) for choice in (plain, fast)]
    if found[0] is None or found[1] is None:
        return None
    return abs(found[0] - found[1])


def _logprob(choice: dict[str, Any], at: int) -> float | None:
    logprobs = choice.get("logprobs") or {}
    content = logprobs.get("content") or ()
    values = logprobs.get("token_logprobs") or [each["logprob"] for each in content]
    return float(values[at]) if at < len(values) and values[at] is not None else None
