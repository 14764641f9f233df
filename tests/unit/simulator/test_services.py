"""Streams over links, and the engines behind them."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest

from foredraft.errors import Unavailable
from foredraft.messages import DraftOpen, VerifyOpen
from foredraft.types import Proposal, SamplingParams
from foredraft_simulator.cluster.replicas import DrafterMaker, VerifierMaker
from foredraft_simulator.models.texts import prompt
from foredraft_simulator.services.drafters import SimulatedDrafterClient
from foredraft_simulator.services.link import Channel, Host, LinkConfig, Network
from foredraft_simulator.services.verifiers import SimulatedVerifierClient
from foredraft_simulator.virtual.loop import run_virtual
from tests.support.scenarios import scenario

CONFIG = scenario()
GREEDY = SamplingParams()


def network(**link: Any) -> Network:
    return Network(LinkConfig(**{"delay_ms": 1000, **link}), Random(1))


def client(pool: str, **changes: Any) -> tuple[Any, Any, Any]:
    """Return a replica, a client a second away, and what opens a session."""
    config = getattr(CONFIG, pool).model_copy(update=changes)
    if pool == "drafter":
        drafter = DrafterMaker(config, CONFIG.acceptance.acceptance(0), [4])("d:1")
        opening = DraftOpen("0", prompt(0, 4), GREEDY, Proposal.COUPLED, 100)
        return drafter, SimulatedDrafterClient(drafter, network()), opening
    no_drafters: Any = None
    verifier = VerifierMaker(config, lambda _: no_drafters)("v:1")
    opened = VerifyOpen("0", prompt(0, 4), GREEDY, 10, 4)
    return verifier, SimulatedVerifierClient(verifier, network()), opened


@pytest.mark.parametrize("pool", ["drafter", "verifier"])
@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_session_that_nobody_waits_for_is_not_left_open(pool: str, seconds: float) -> None:
    async def main() -> int:
        replica, there, opening = client(pool)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await there.open(opening)
        await asyncio.sleep(10)
        return int(replica.sessions)

    assert run_virtual(main()) == 0


@pytest.mark.parametrize("pool", ["drafter", "verifier"])
def test_what_waits_at_a_replica_that_is_lost_fails(pool: str) -> None:
    async def main() -> float:
        replica, there, opening = client(pool)
        asyncio.get_running_loop().call_at(0.5, replica.engine.fail)
        with pytest.raises(Unavailable):
            await there.open(opening)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(1.0)


@pytest.mark.parametrize("pool", ["drafter", "verifier"])
def test_a_replica_handles_one_message_at_a_time(pool: str) -> None:
    async def main() -> list[float]:
        _, there, opening = client(pool, message_s=0.25)
        took = []

        async def one() -> None:
            await there.open(opening)
            took.append(asyncio.get_running_loop().time())

        await asyncio.gather(*(one() for _ in range(3)))
        return took

    assert run_virtual(main()) == pytest.approx([2.25, 2.5, 2.75])


def test_messages_never_overtake_each_other() -> None:
    async def main() -> list[int]:
        channel = Channel(network(jitter_ms=5000, loss=0.3))
        came: list[int] = []
        for number in range(50):
            channel.send(partial(came.append, number))
            await asyncio.sleep(0.01)
        await asyncio.sleep(100)
        return came

    assert run_virtual(main()) == list(range(50))


def test_a_cut_link_delivers_once_it_is_mended() -> None:
    async def main() -> float:
        cut = network()
        cut.cut(7.0)
        await Channel(cut).cross()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(8.0)


def test_a_host_handles_one_message_at_a_time() -> None:
    async def main() -> list[float]:
        host = Host(0.25)
        channels = [Channel(network(), host) for _ in range(3)]
        return [channel.due() for channel in channels]

    assert run_virtual(main()) == pytest.approx([1.25, 1.5, 1.75])
