"""Drafters on one host, verifiers on another: their link slows and breaks, the drafters' host ends
and comes back. No request fails, and every text is that of plain decoding.

The hosts are network namespaces with a Ray node each, the link is a wire of the test's own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deployments.config import EMBEDDED_FILE
from foredraft.client import CompletionClient
from foredraft_cli.prompts.held_out import prompts
from tests.support.hosts.asking import Question, asking, questions
from tests.support.hosts.host import Host, two_hosts, why_none
from tests.support.hosts.ray_nodes import RayNodes
from tests.support.hosts.wire import Wire
from tests.support.waiting import eventually

VERIFIER, DRAFTER = {"foredraft": "verifier"}, {"foredraft": "drafter"}
_PORT = 8000
_CUT_S = 5.0


class Running(NamedTuple):
    """The two hosts with the application."""

    folder: Path
    verifying: Host
    drafting: Host
    wire: Wire
    nodes: RayNodes


def serve_file(folder: Path, host: Host, ingress: dict[str, str]) -> Path:
    """A configuration with the ingress on a host, by labels."""
    values: Any = yaml.safe_load(EMBEDDED_FILE.read_text())
    args = values["applications"][0]["args"]
    # A drafter drafts always; the text's own n-grams never.
    args["orchestrator"] |= {"adl": {"name": "fixed", "k": 8}, "ngram": {"enabled": False}}
    direct = {"host": host.address, "port": _PORT}
    args["ingress"] = {"direct": direct, "node_labels": ingress}
    args["verifier"]["node_labels"] = VERIFIER
    args["drafter"] = {"node_labels": DRAFTER}
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@contextmanager
def started() -> Iterator[Running]:
    # Ray's sockets have to fit into 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="fd", ignore_cleanup_errors=True) as name,
        two_hosts() as (verifying, drafting, wire),
    ):
        folder = Path(name)
        nodes = RayNodes(folder)
        nodes.start(verifying, VERIFIER)
        nodes.start(drafting, DRAFTER)
        nodes.deploy(verifying, serve_file(folder, verifying, VERIFIER))
        yield Running(folder, verifying, drafting, wire, nodes)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Running]:
    if why := why_none():
        pytest.skip(why)
    with started() as running:
        yield running


@pytest.fixture
async def client(hosts: Running) -> AsyncIterator[CompletionClient]:
    """A client beside the verifier."""
    with hosts.verifying.entered():
        async with CompletionClient(f"http://{hosts.verifying.address}:{_PORT}") as opened:
            yield opened


@pytest.fixture
async def asked(client: CompletionClient) -> list[Question]:
    return await questions(client, prompts(2), temperature=0.8)


def test_replicas_are_where_their_labels_are(hosts: Running) -> None:
    assert hosts.nodes.places(hosts.verifying) == {
        "ingress": [hosts.verifying.address],
        "verifier": [hosts.verifying.address],
        "drafter": [hosts.drafting.address],
    }


async def test_a_slow_link(hosts: Running, client: CompletionClient, asked: list[Question]) -> None:
    async with asking(client, asked) as seen:
        await seen.comes(drafted=True)
        hosts.wire.delay_s = 0.01
        await seen.comes(drafted=True)
        # No draft comes within the 50 ms that a round waits for it.
        hosts.wire.delay_s = 0.1
        await seen.comes(drafted=False)
        hosts.wire.delay_s = 0.0
        await seen.comes(drafted=True)
    assert all(answer.identical for answer in seen.answers)


async def test_a_link_that_is_cut(
    hosts: Running, client: CompletionClient, asked: list[Question]
) -> None:
    async with asking(client, asked) as seen:
        await seen.comes(drafted=True)
        hosts.wire.cut()
        async with asyncio.TaskGroup() as both:
            both.create_task(asyncio.sleep(_CUT_S))
            both.create_task(seen.comes(drafted=False))
        hosts.wire.mend()
        await seen.comes(drafted=True)
    assert all(answer.identical for answer in seen.answers)


async def test_a_host_that_ends_and_comes_back(
    hosts: Running, client: CompletionClient, asked: list[Question]
) -> None:
    async with asking(client, asked) as seen:
        await seen.comes(drafted=True)
        await asyncio.to_thread(hosts.drafting.kill_all)
        await seen.comes(drafted=False)
        await asyncio.to_thread(hosts.nodes.start, hosts.drafting, DRAFTER)
        await seen.comes(drafted=True)
    assert all(answer.identical for answer in seen.answers)
    assert hosts.nodes.places(hosts.verifying)["drafter"] == [hosts.drafting.address]
    assert "RUNNING" in hosts.nodes.status(hosts.verifying)


async def test_a_cut_between_the_ingress_and_its_verifier(hosts: Running) -> None:
    """The ingress moves to the drafter's host: without the link nothing decodes, nothing fails."""
    host = hosts.drafting
    file = serve_file(hosts.folder, host, DRAFTER)
    await asyncio.to_thread(hosts.nodes.deploy, hosts.verifying, file)
    await eventually(
        lambda: hosts.nodes.places(hosts.verifying).get("ingress") == [host.address], 0.25
    )
    with host.entered():
        async with CompletionClient(f"http://{host.address}:{_PORT}") as client:
            asked = await questions(client, prompts(2), temperature=0.8)
            async with asking(client, asked) as seen:
                await seen.comes(drafted=True)
                hosts.wire.cut()
                await asyncio.sleep(_CUT_S)
                hosts.wire.mend()
                await seen.comes(drafted=True)
    assert all(answer.identical for answer in seen.answers)
