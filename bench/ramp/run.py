"""`foredraft bench ramp`: a load that rises and falls, and what the policy made of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from bench.ramp.arrivals import RAMP, Arrival, Phase, arrivals
from deployments.autoscaling.names import decisions_key
from deployments.autoscaling.signals import PoolName
from deployments.config import DATA, ServeFile, located
from deployments.serve.cluster import running
from deployments.serve.memory import remembered
from foredraft.client import CompletionClient, CompletionResult
from foredraft.errors import ConfigError, ForedraftError
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import fitted, prompts


@dataclass(frozen=True, slots=True)
class RampPlan:
    """The load, and how long the pools may take to be at rest after it."""

    phases: tuple[Phase, ...] = RAMP
    texts: int = 4
    prompt_tokens: int = 64
    max_tokens: int = 128
    temperature: float = 0.8
    seed: int = 1
    rest_s: float = 60.0

    @property
    def seconds(self) -> float:
        """How long the load lasts."""
        return sum(phase.seconds for phase in self.phases)


class Answered(NamedTuple):
    """One request: when it was sent, what it took, in seconds, its tokens, or why it has none.

    drafted are the tokens of all its drafts, accepted those that are in its text.
    """

    at_s: float
    seconds: float
    tokens: tuple[int, ...]
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    error: str = ""


class Change(NamedTuple):
    """One decision of the policy that changed a number: seconds after the load's first moment."""

    at_s: float
    pool: str
    before: int
    target: int
    wish: int
    reason: str


class Serving(NamedTuple):
    """From when on a pool had so many replicas that serve."""

    at_s: float
    pool: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Ramp:
    """What was sent, what came of it, and what plain decoding makes of each text."""

    arrivals: list[Arrival]
    answers: list[Answered]
    plain: list[tuple[int, ...]]
    changes: list[Change]
    serving: list[Serving]
    prompt_tokens: list[int]

    @property
    def identical(self) -> int:
        """How many answers are plain decoding's."""
        pairs = zip(self.arrivals, self.answers, strict=True)
        return sum(answer.tokens == self.plain[asked.text] for asked, answer in pairs)

    def numbers(self, pool: PoolName) -> list[int]:
        """Return how many replicas a pool was given, one after the other."""
        own = [change for change in self.changes if change.pool == pool]
        return [own[0].before, *(change.target for change in own)] if own else []


async def measure(file: ServeFile, plan: RampPlan, say: Callable[[str], None]) -> Ramp:
    """Send a plan's load to a file's application, and return all that happened.

    Raise ConfigError for a file without an autoscaling policy.
    """
    args = located(file.application.args)
    if file.application.autoscaling_policy is None:
        raise ConfigError("a ramp needs an autoscaling_policy", param="autoscaling_policy")
    tokenizer = Tokenizer.from_file(str(args.tokenizer_file))
    room = plan.prompt_tokens + plan.max_tokens
    texts = [fitted(text, tokenizer, room, plan.max_tokens) for text in prompts(plan.texts)]
    asked = arrivals(plan.phases, len(texts), plan.max_tokens, plan.temperature, plan.seed)
    with running(file) as cluster:
        async with CompletionClient(cluster.url) as client:
            began, began_at = time.monotonic(), time.time()

            async def answer(one: Arrival) -> Answered:
                await asyncio.sleep(began + one.at_s - time.monotonic())
                sent = time.monotonic()
                try:
                    found = await _decoded(client, texts, one)
                except ForedraftError as failure:
                    return Answered(sent - began, time.monotonic() - sent, (), error=str(failure))
                report = found.report
                return Answered(
                    sent - began,
                    time.monotonic() - sent,
                    found.tokens,
                    report["num_spec_steps"],
                    report["num_draft_tokens"],
                    report["num_accepted_draft_tokens"],
                )

            serving: list[Serving] = []
            watching = asyncio.create_task(_watch(file.application.name, began, serving))
            answers = await asyncio.gather(*(answer(one) for one in asked))
            say(f"{len(answers)} requests in {time.monotonic() - began:.0f} s")
            await _at_rest(file, plan.rest_s)
            watching.cancel()
            changes = _changes(file.application.name, began_at)
            first = [next(one for one in asked if one.text == text) for text in range(len(texts))]
            plain = await asyncio.gather(
                *(_decoded(client, texts, one, enabled=False) for one in first)
            )
    prompt_tokens = [len(texts[one.text]) for one in asked]
    texts_plain = [each.tokens for each in plain]
    return Ramp(asked, list(answers), texts_plain, changes, serving, prompt_tokens)


async def _decoded(
    client: CompletionClient, texts: Sequence[tuple[int, ...]], one: Arrival, **options: Any
) -> CompletionResult:
    sampling = SamplingParams(temperature=one.temperature, seed=one.seed)
    return await client.complete(texts[one.text], sampling, one.max_tokens, **options)


async def _watch(application: str, began: float, found: list[Serving]) -> None:
    """Add a pool's replicas that serve, whenever their number has changed; until cancelled."""
    last: dict[PoolName, int] = {}
    while True:
        for pool, replicas in (await asyncio.to_thread(_replicas, application)).items():
            if last.get(pool) != replicas:
                found.append(Serving(round(time.monotonic() - began, 2), pool, replicas))
                last[pool] = replicas
        await asyncio.sleep(0.25)


def _replicas(application: str) -> dict[PoolName, int]:
    from ray import serve

    deployments = serve.status().applications[application].deployments
    states = {pool: deployments[pool].replica_states.items() for pool in PoolName}
    return {
        pool: sum(count for state, count in counts if state == "RUNNING")
        for pool, counts in states.items()
    }


async def _at_rest(file: ServeFile, timeout_s: float) -> None:
    """Wait until both pools are as small as they may be, or no longer."""
    args = file.application.args
    least = [pool.autoscaling.min_replicas for pool in (args.drafter, args.verifier)]  # type: ignore[union-attr]
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        kept = json.loads(remembered(decisions_key(file.application.name)) or b"{}")
        newest = kept.get("newest", {})
        if [newest.get(str(pool), {}).get("target") for pool in PoolName] == least:
            return
        await asyncio.sleep(0.5)


def _changes(application: str, began_at: float) -> list[Change]:
    kept = json.loads(remembered(decisions_key(application)) or b'{"changes": []}')
    return [
        Change(
            round(each["at"] - began_at, 2),
            each["pool"],
            each["before"],
            each["target"],
            each["wish"],
            each["reason"],
        )
        for each in kept["changes"]
    ]


def as_json(file: ServeFile, plan: RampPlan, ramp: Ramp) -> dict[str, Any]:
    """Return a ramp as plain values: enough to replay it."""
    # The shipped models by their names, wherever they lie.
    configuration = file.model_dump_json().replace(f"{DATA}/", "")
    return {
        "configuration": json.loads(configuration),
        "phases": [phase._asdict() for phase in plan.phases],
        "arrivals": [
            {**one._asdict(), "at_s": round(one.at_s, 4), "prompt_tokens": size}
            for one, size in zip(ramp.arrivals, ramp.prompt_tokens, strict=True)
        ],
        "answers": [
            {
                "at_s": round(each.at_s, 3),
                "seconds": round(each.seconds, 3),
                "tokens": len(each.tokens),
                "drafts": each.drafts,
                "drafted": each.drafted,
                "accepted": each.accepted,
                "error": each.error,
            }
            for each in ramp.answers
        ],
        "serving": [each._asdict() for each in ramp.serving],
        "identical": ramp.identical,
        "changes": [change._asdict() for change in ramp.changes],
    }


def as_markdown(ramp: Ramp) -> str:
    """Return the changes as a table, and how many texts are plain decoding's."""
    rows = [
        f"| {each.at_s:.1f} | {each.pool} | {each.before} -> {each.target} | {each.reason} |"
        for each in ramp.changes
    ]
    table = "\n".join(["| s | pool | replicas | reason |", "|--:|---|---|---|", *rows])
    return f"{table}\n\nidentical to plain decoding: {ramp.identical}/{len(ramp.answers)}\n"
