"""One paced drafter that several paced verifiers share: python -m bench.paced.shared.

Each verifier, with sessions of its own, is a process, and so is the drafter; the sessions'
orchestrators are in this one. No Ray is between them: the services are the same without it. The
verifiers lead their sessions' rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.load.traffic import Answer, Traffic, Turn
from bench.paced.points import Modelled, Setting
from bench.paced.record import RecordingPlan, recorded
from bench.paced.run import GAUGES, check_texts, paced, traffic_of
from bench.paced.shares import SharedPoint, as_markdown, shared_point, summary
from deployments.config import PACED_FILE, ForedraftConfig, located, read
from drafter_service.client import DrafterClient
from foredraft.client import Prompt
from foredraft.rpc.server import ServiceServer
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent
from verifier_service.client import VerifierClient

RESULTS = Path("bench/out").absolute()


def replica(package: str, config: Any, to_parent: Connection) -> None:
    """Serve until the parent closes the pipe; send the port and the tokens that end a text, then
    the gauges whenever asked.
    """

    async def serve() -> None:
        parts = {"connect": DrafterClient} if package == "verifier_service" else {}
        server: ServiceServer = await import_module(f"{package}.server").serve(config, **parts)
        to_parent.send((server.port, server.info.eos_token_ids))
        try:
            while True:
                await asyncio.to_thread(to_parent.recv)
                to_parent.send(server.stats())
        except EOFError:
            await server.stop()

    asyncio.run(serve())


@dataclass(frozen=True, slots=True)
class Process:
    """A replica in a process of its own."""

    port: int
    eos: tuple[int, ...]
    to_child: Connection

    async def gauges(self) -> dict[str, float]:
        """Return what it has counted."""
        self.to_child.send(None)
        stats = await asyncio.to_thread(self.to_child.recv)
        return {name: float(stats[name]) for name in GAUGES}


@asynccontextmanager
async def started(package: str, config: Any) -> AsyncIterator[Process]:
    """Start a replica, and stop it on exit."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=replica, args=(package, config, there), daemon=True)
    process.start()
    there.close()
    try:
        port, eos = await asyncio.to_thread(here.recv)
        yield Process(port, tuple(eos), here)
    finally:
        here.close()
        await asyncio.to_thread(process.join)


@dataclass(frozen=True, slots=True)
class Group:
    """A verifier, the sessions that it serves, and the drafter that it shares."""

    verifier: Process
    to_verifier: VerifierClient
    to_drafter: DrafterClient
    config: OrchestratorConfig
    state: ControllerState

    async def answer(self, traffic: Traffic, index: int, prompt: Prompt) -> Answer:
        """Decode one prompt."""
        request = GenerationRequest(
            session_id=uuid.uuid4().hex,
            prompt=tuple(int(token) for token in prompt),
            sampling=traffic.samplings[index],
            max_new_tokens=traffic.max_tokens[index],
            stop_token_ids=self.verifier.eos,
        )
        sent = time.perf_counter()
        tokens: list[int] = []
        chunks: list[float] = []
        events = generate(request, self.to_drafter, self.to_verifier, self.config, state=self.state)
        async for event in events:
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
                chunks.append(time.perf_counter())
        return Answer(tuple(tokens), sent, tuple(chunks))

    async def turn(self, traffic: Traffic) -> tuple[Turn, dict[str, float]]:
        """Decode all prompts; return the turn, and what the verifier's gauges rose by in it."""
        before = await self.verifier.gauges()
        turn = await traffic.play(partial(self.answer, traffic))
        return turn, _rise(before, await self.verifier.gauges())


async def share(
    file: Path, verifiers: int, sessions: int, temperature: float, slowdown: float
) -> SharedPoint:
    """Return the point of so many verifiers that share a drafter, each with so many sessions."""
    serve_file = read(file)
    args = located(serve_file.application.args)
    pace, drafts = args.verifier.service.pace, args.drafter.service.pace
    assert pace is not None and drafts is not None
    path, texts = await recorded(args, RecordingPlan(), RESULTS, _say)
    slowed: ForedraftConfig = paced(serve_file, path, slowdown, 0.0, True).application.args
    slowed = located(slowed)
    traffic = traffic_of(texts, Setting(args.name, sessions, temperature, slowdown), 2 * sessions)
    async with AsyncExitStack() as stack:
        drafter = await stack.enter_async_context(
            started("drafter_service", slowed.drafter.service)
        )
        groups = []
        for _ in range(verifiers):
            verifier = await stack.enter_async_context(
                started("verifier_service", slowed.verifier.service)
            )
            groups.append(
                Group(
                    verifier,
                    await stack.enter_async_context(VerifierClient(_address(verifier))),
                    await stack.enter_async_context(DrafterClient(_address(drafter))),
                    slowed.orchestrator,
                    ControllerState(),
                )
            )
        # A first turn teaches the controllers, and does not count.
        await asyncio.gather(*(group.turn(traffic) for group in groups))
        before = await drafter.gauges()
        turns = await asyncio.gather(*(group.turn(traffic) for group in groups))
        drafted = _rise(before, await drafter.gauges())
    for turn, _ in turns:
        check_texts(texts, temperature, turn.answers)
    return shared_point(sessions, temperature, slowdown, Modelled(pace, drafts), turns, drafted)


def _address(process: Process) -> str:
    return f"127.0.0.1:{process.port}"


def _rise(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in before}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=Path, default=PACED_FILE.with_name("h100_heavy_drafter.yaml")
    )
    parser.add_argument("--verifiers", type=int, nargs="+", default=(1, 2, 4, 8))
    parser.add_argument("--sessions", type=int, default=8, help="of each verifier")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.8,))
    parser.add_argument("--slowdown", type=float, default=100)
    asked = parser.parse_args()
    points = []
    for temperature in asked.temperatures:
        for verifiers in asked.verifiers:
            points.append(
                asyncio.run(
                    share(asked.config, verifiers, asked.sessions, temperature, asked.slowdown)
                )
            )
            _say(summary(points[-1]))
    sys.stdout.write(as_markdown(points))


if __name__ == "__main__":
    main()
