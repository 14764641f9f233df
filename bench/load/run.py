"""`foredraft bench load`: plain decoding and Foredraft in turn, at more and more sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice, repeat, zip_longest

import aiohttp

from bench.compare.pairs import Pair
from bench.compare.workload import AS_CONFIGURED, PLAIN
from bench.load.points import CountedTurn, Point, Work, point
from bench.load.traffic import Traffic, connect
from deployments.serve.cluster import running
from foredraft.client import Prompt
from foredraft_cli.prompts.held_out import TEMPERATURES, sampling

# From one answer's length to the next one's: prime, so that all lengths come, and far apart.
_STEP = 37


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Which numbers of sessions are measured, in how many turns, with how many tokens an answer.

    Answers have half to one and a half times max_tokens: those of one length would keep in step,
    and plain decoding would have all sessions in every pass, as it hardly has elsewhere.
    A turn of one session has least_requests requests, one of four or more four times as many: they
    take as long, and a turn of two seconds is too noisy. model is one of the server's, "" the
    first.
    """

    sessions: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    temperatures: tuple[float, ...] = TEMPERATURES
    turns: int = 5
    max_tokens: int = 64
    least_requests: int = 32
    model: str = ""

    def requests(self, sessions: int) -> int:
        """Return how many requests a turn has; each session has two at least."""
        return max(min(4, sessions) * self.least_requests, 2 * sessions)

    def length(self, index: int) -> int:
        """Return the most tokens of an answer, by its place among the requests."""
        return self.max_tokens // 2 + index * _STEP % (self.max_tokens + 1)


QUICK = LoadPlan(sessions=(1, 4, 16), turns=3, max_tokens=48, least_requests=8)


async def measure(
    pairs: Sequence[Pair], plan: LoadPlan, say: Callable[[Point], None]
) -> list[Point]:
    """Return a point for each pair, temperature and number of sessions, through a cluster."""
    points: list[Point] = []
    for pair in pairs:
        with running(pair.file) as cluster:
            async with connect() as http:
                for temperature in plan.temperatures:
                    for sessions in plan.sessions:
                        traffic = traffic_of(pair, plan, sessions, temperature)
                        turns = repeat(traffic, plan.turns)
                        plain, foredraft = await alternate(http, cluster.url, turns)
                        name = plan.model or pair.name
                        points.append(point(name, sessions, temperature, plain, foredraft))
                        say(points[-1])
    return points


def traffic_of(pair: Pair, plan: LoadPlan, sessions: int, temperature: float) -> Traffic:
    """Return the requests of a turn: a pair's prompts, one of each set after the other."""
    prompts = tuple(islice(_mixed(pair), plan.requests(sessions)))
    samplings = [sampling(temperature, index) for index in range(len(prompts))]
    lengths = [plan.length(index) for index in range(len(prompts))]
    return Traffic(prompts, samplings, sessions, lengths, model=plan.model)


def _mixed(pair: Pair) -> Iterator[Prompt]:
    sets = zip_longest(*(each.prompts for each in pair.sets))
    return cycle(prompt for prompt in chain.from_iterable(sets) if prompt is not None)


async def alternate(
    http: aiohttp.ClientSession, url: str, traffics: Iterable[Traffic]
) -> tuple[list[CountedTurn], list[CountedTurn]]:
    """Return the turns of plain decoding and of Foredraft; who goes first alternates, too."""
    plain: list[CountedTurn] = []
    foredraft: list[CountedTurn] = []
    order = [(PLAIN, plain), (AS_CONFIGURED, foredraft)]
    for traffic in traffics:
        for mode, found in order:
            before = await _work_done(http, url)
            done = await traffic.turn(http, url, mode)
            found.append(CountedTurn(done, await _work_done(http, url) - before))
        order.reverse()
    return plain, foredraft


async def _work_done(http: aiohttp.ClientSession, url: str) -> Work:
    """Return what the verifier has done so far; nothing where it does not say."""
    async with http.get(f"{url}/health") as response:
        counted = (await response.json()).get("verifier") or {}
    return Work(*(float(counted.get(name, 0.0)) for name in ("passes", "rows", "pass_s")))
