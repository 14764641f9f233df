"""`foredraft record` against the ingress's own port."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.errors import ForedraftError, Unavailable
from foredraft_cli.simulation.record import recorded
from foredraft_simulator.recorded_runs.records import Header, read_run, write_run
from tests.support.cluster import free_port
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.wire.test_direct_http import served

TEXTS = ["import os", "def sum(values):", "class Tree:"]


async def test_every_round_of_every_request_is_in_the_file(tmp_path: Path) -> None:
    arrivals = [(0.0, 12), (0.01, 7), (0.02, 9)]
    async with served(ScriptedVerifier()) as server:
        url = f"http://127.0.0.1:{server.port}"
        model, found = await recorded(url, TEXTS, arrivals, 2, 0.8)
    path = tmp_path / "run.jsonl.gz"
    write_run(path, Header(model=model), found)
    run = read_run(path)
    assert run.header.model == model
    assert [each.output_tokens for each in run.requests] == [12, 7, 9]
    for request in run.requests:
        assert request.temperature == 0.8
        assert 0 < request.ttft_s <= request.seconds
        began = [each.began_s for each in request.rounds]
        assert began == sorted(began)
    assert any(each.kept for request in run.requests for each in request.rounds)


async def test_what_the_server_refuses_ends_the_recording() -> None:
    async with served(ScriptedVerifier()) as server:
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(ForedraftError, match="max_tokens"):
            await recorded(url, ["text"], [(0.0, 1 << 30)], 1, 0.0)


async def test_without_a_server_there_is_an_error() -> None:
    with pytest.raises(Unavailable, match="no server answers"):
        await recorded(f"http://127.0.0.1:{free_port()}", ["text"], [(0.0, 4)], 1, 0.0)
