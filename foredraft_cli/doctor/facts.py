"""What the doctor looks at: the server's description, and a few requests decoded both ways."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.errors import Unavailable
from foredraft_cli.remote import Reply, Server

NO_REPLY = Reply(0, None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's answer: its status, tokens, wall time in seconds, rounds and report."""

    reply: Reply
    seconds: float

    @property
    def tokens(self) -> list[int]:
        """The answer's token ids."""
        found: list[int] = self._choice["token_ids"]
        return found

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Each round (docs/api.md#rounds)."""
        found: list[dict[str, Any]] = self._choice["rounds"]
        return found

    @property
    def report(self) -> dict[str, Any]:
        """How speculation did."""
        found: dict[str, Any] = self.reply.body["metrics"]["speculative_decoding"]
        return found

    @property
    def _choice(self) -> dict[str, Any]:
        choice: dict[str, Any] = self.reply.body["choices"][0]
        return choice


@dataclass(frozen=True, slots=True)
class Probe:
    """One request, decoded plainly and with drafts."""

    plain: Answer
    fast: Answer


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a server. silence is why nothing answers, probes are those answered."""

    url: str
    silence: str = ""
    health: Reply = NO_REPLY
    refusal: Reply | None = None
    probes: tuple[Probe, ...] = ()

    @property
    def verifier(self) -> dict[str, Any]:
        """The verifier's part of /health, empty where there is none."""
        return self._part("verifier")

    @property
    def drafter(self) -> dict[str, Any]:
        """The drafter's part of /health, empty where there is none."""
        return self._part("drafter")

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The rounds of all requests that could be drafted for."""
        return [one for probe in self.probes for one in probe.fast.rounds]

    def _part(self, name: str) -> dict[str, Any]:
        found = self.health.body.get(name) if isinstance(self.health.body, dict) else None
        return found if isinstance(found, dict) else {}


async def gather(server: Server, prompts: Sequence[str], max_tokens: int) -> Facts:
    """Return a server's health, and how it decodes the prompts, both ways in turn."""
    try:
        health = await server.get("/health")
    except Unavailable as error:
        return Facts(server.url, silence=str(error))
    facts = Facts(server.url, health=health)
    if not facts.verifier:
        return facts
    probes: list[Probe] = []
    for prompt in prompts:
        plain = await _decoded(server, prompt, max_tokens, enabled=False)
        fast = await _decoded(server, prompt, max_tokens, enabled=True)
        refused = next((each.reply for each in (plain, fast) if each.reply.status != 200), None)
        if refused is not None:
            return Facts(server.url, health=health, refusal=refused, probes=tuple(probes))
        probes.append(Probe(plain, fast))
    return Facts(server.url, health=health, probes=tuple(probes))


async def _decoded(server: Server, prompt: str, max_tokens: int, enabled: bool) -> Answer:
    body = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 1,
        "ignore_eos": True,
        "return_token_ids": True,
        # Neither of the two finds what the other one has read.
        "cache_salt": uuid.uuid4().hex,
        "speculative": {"enabled": enabled, "rounds": True},
    }
    began = time.perf_counter()
    reply = await server.post("/v1/completions", body)
    return Answer(reply, time.perf_counter() - began)
