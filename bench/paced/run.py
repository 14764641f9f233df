"""`foredraft bench paced`: plain decoding and Foredraft in turn, at a modelled device's pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import aiohttp

from bench.compare.workload import AS_CONFIGURED, PLAIN, Mode
from bench.load.traffic import Answer, Traffic, connect
from bench.paced.points import Modelled, PacedPoint, PacedTurn, Setting, paced_point, summary
from bench.paced.record import RecordingPlan, recorded
from deployments.config import ServeFile, located
from deployments.serve.cluster import running
from foredraft.errors import ConfigError, Unavailable
from foredraft.pacing.recording import RecordedText
from foredraft.rpc.config import LinkConfig
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import TEMPERATURES

GAUGES = (
    "paced_passes",
    "late_passes",
    "modelled_s",
    "prefill_s",
    "overrun_s",
    "paced_rounds",
    "round_rows",
    "round_context",
)

# Of each service: the times in its options that are modelled, too.
_WAITS = {"drafter": ("idle_ttl_s",), "verifier": ("idle_ttl_s", "plain_round_ms")}


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """What is measured: sessions at temperatures, then links at one session.

    slowdowns has for each number of sessions, up to which it holds, a factor at which this machine
    adds little to a round; slowdown replaces them. Every point has turns of each way after a first
    one of Foredraft that does not count.
    """

    sessions: tuple[int, ...] = (1, 8, 32, 256)
    temperatures: tuple[float, ...] = TEMPERATURES
    links_ms: tuple[float, ...] = ()
    turns: int = 2
    slowdowns: tuple[tuple[int, float], ...] = ((8, 30), (32, 80), (256, 50))
    slowdown: float | None = None
    recording: RecordingPlan = field(default=RecordingPlan())

    def slowdown_of(self, sessions: int) -> float:
        """Return the factor for a number of sessions."""
        if self.slowdown is not None:
            return self.slowdown
        return next((s for most, s in self.slowdowns if sessions <= most), self.slowdowns[-1][1])

    def requests(self, sessions: int) -> int:
        """Return how many requests a turn has.

        Four for each session, since few are in flight at a turn's end; where sessions are many,
        they begin one after the other, and a turn with one each takes long enough.
        """
        return max(6, 4 * sessions if sessions < 64 else sessions)


QUICK = PacedPlan(sessions=(1, 32), turns=1)


def paced(
    file: ServeFile, recording: Path, slowdown: float, link_ms: float, run_ahead: bool
) -> ServeFile:
    """Return a paced file with a recording, slowed down, its deadlines and links as well.

    link_ms is the delay of the device's link to the drafter, each way.
    """
    args = file.application.args
    services: dict[str, Any] = {}
    for name, waits in _WAITS.items():
        pool = getattr(args, name)
        pace = pool.service.pace.model_copy(update={"slowdown": slowdown})
        slower = {wait: slowdown * getattr(pool.service, wait) for wait in waits}
        service = pool.service.model_copy(update={"pace": pace, "recording": recording} | slower)
        services[name] = pool.model_copy(update={"service": service})
    link = LinkConfig(delay_ms=slowdown * link_ms)
    services["drafter"] = services["drafter"].model_copy(update={"link": link})
    deadlines = (
        "draft_deadline_ms",
        "drafter_timeout_s",
        "verify_timeout_s",
        "open_timeout_s",
    )
    # As long as it may be.
    interval_ms = min(1000.0, slowdown * args.orchestrator.stream_interval_ms)
    orchestrator = args.orchestrator.model_copy(
        update={name: slowdown * getattr(args.orchestrator, name) for name in deadlines}
        | {"stream_interval_ms": interval_ms}
        | ({} if run_ahead else {"run_ahead_min_hit_rate": 1.0})
    )
    changed = args.model_copy(update=services | {"orchestrator": orchestrator})
    entry = file.application.model_copy(update={"args": changed})
    return file.model_copy(update={"applications": [entry]})


async def measure(
    file: ServeFile,
    plan: PacedPlan,
    folder: Path,
    say: Callable[[str], None],
) -> list[PacedPoint]:
    """Return a point for each number of sessions and temperature, and for each link.

    Raise ConfigError for a file whose services are not paced, and Unavailable where a plain answer
    is not the recorded one.
    """
    args = located(file.application.args)
    verifier, drafter = args.verifier.service.pace, args.drafter.service.pace
    if verifier is None or drafter is None:
        raise ConfigError("both services of a paced file need a pace", param="pace")
    modelled = Modelled(verifier, drafter)
    path, texts = await recorded(args, plan.recording, folder, say)
    settings = [(sessions, 0.0, True) for sessions in plan.sessions]
    settings += [(1, link, ahead) for link in plan.links_ms for ahead in (False, True)]
    points: list[PacedPoint] = []
    for sessions, link_ms, run_ahead in settings:
        slowdown = plan.slowdown_of(sessions)
        with running(paced(file, path, slowdown, link_ms, run_ahead)) as cluster:
            async with connect() as http:
                for temperature in plan.temperatures:
                    setting = Setting(
                        args.name, sessions, temperature, slowdown, link_ms, run_ahead
                    )
                    traffic = traffic_of(texts, setting, plan.requests(sessions))
                    plain, foredraft = await _alternate(http, cluster.url, traffic, plan.turns)
                    check_texts(texts, temperature, plain[0].turn.answers)
                    points.append(paced_point(setting, modelled, plain, foredraft))
                    say(summary(points[-1]))
    return points


def traffic_of(texts: Sequence[RecordedText], setting: Setting, requests: int) -> Traffic:
    """Return the requests of a turn: recorded prompts, each with the sampling it was recorded at.

    Where there are more requests than texts, they come again.
    """
    there = [text for text in texts if text.temperature == setting.temperature]
    chosen = list(islice(cycle(there), requests))
    return Traffic(
        [text.prompt for text in chosen],
        [SamplingParams(temperature=text.temperature, seed=text.seed) for text in chosen],
        setting.sessions,
        [max(len(text.answer) for text in there)] * len(chosen),
        # Serve chooses a replica for so many requests a second here.
        stagger_s=0.1 if setting.sessions > 64 else 0.0,
    )


def check_texts(
    texts: Sequence[RecordedText], temperature: float, answers: Sequence[Answer]
) -> None:
    """Raise Unavailable where an answer is not the recorded one."""
    there = (text for text in texts if text.temperature == temperature)
    for text, answer in zip(cycle(there), answers, strict=False):
        if answer.tokens != text.answer:
            raise Unavailable("plain decoding does not play back what was recorded")


async def _alternate(
    http: aiohttp.ClientSession, url: str, traffic: Traffic, turns: int
) -> tuple[list[PacedTurn], list[PacedTurn]]:
    """Return the turns of plain decoding and of Foredraft; who goes first alternates, too."""
    await traffic.turn(http, url, AS_CONFIGURED)
    plain: list[PacedTurn] = []
    foredraft: list[PacedTurn] = []
    for turn in range(turns):
        order = [(PLAIN, plain), (AS_CONFIGURED, foredraft)]
        for mode, found in order if turn % 2 == 0 else order[::-1]:
            found.append(await _turn(http, url, traffic, mode))
    return plain, foredraft


async def _turn(http: aiohttp.ClientSession, url: str, traffic: Traffic, mode: Mode) -> PacedTurn:
    before, cpu_before = await _gauges(http, url), cpu_times()
    turn = await traffic.turn(http, url, mode)
    cpu_after, after = cpu_times(), await _gauges(http, url)
    verifier, drafter = (
        {name: now[name] - then[name] for name in GAUGES}
        for then, now in zip(before, after, strict=True)
    )
    busy, total = (b - a for a, b in zip(cpu_before, cpu_after, strict=True))
    return PacedTurn(turn, verifier, drafter, busy / total if total else 0.0)


async def _gauges(http: aiohttp.ClientSession, url: str) -> list[dict[str, float]]:
    """Return what verifier and drafter have counted; raise Unavailable where one is missing."""
    async with http.get(f"{url}/health") as response:
        health = await response.json()
    found = [health.get(name) or {} for name in ("verifier", "drafter")]
    for service in found:
        if "paced_passes" not in service:
            raise Unavailable("a paced service does not answer")
    return [{name: float(service[name]) for name in GAUGES} for service in found]


def cpu_times() -> tuple[float, float]:
    """Return this machine's busy and total CPU time so far, in ticks of all cores; 0 off Linux."""
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    # Idle, and waiting for a disk.
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
