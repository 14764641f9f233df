"""A service's command line: what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from foredraft.errors import ConfigError, ForedraftError, Unavailable, WeightsError
from foredraft.rpc import main
from foredraft.rpc.config import ServiceConfig


class Server:
    """A server that takes note of its life."""

    def __init__(self) -> None:
        self.life: list[str] = []
        self.breaks = asyncio.Event()
        self.drained = asyncio.Event()
        self.draining = asyncio.Event()
        self.watched = asyncio.Event()

    async def broken(self) -> ForedraftError:
        self.watched.set()
        await self.breaks.wait()
        return Unavailable("the engine is gone")

    async def drain(self) -> None:
        self.life.append("drain")
        self.draining.set()
        await self.drained.wait()
        self.life.append("drained")

    async def stop(self) -> None:
        self.life.append("stop")


def started(server: Server) -> asyncio.Task[int]:
    async def serve(config: ServiceConfig) -> Server:
        return server

    return asyncio.create_task(main.run(serve, ServiceConfig()))


async def ended(running: asyncio.Task[int]) -> int:
    async with asyncio.timeout(10):
        return await running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_then_stops(number: signal.Signals) -> None:
    server = Server()
    running = started(server)
    await server.watched.wait()
    os.kill(os.getpid(), number)
    await server.draining.wait()
    assert server.life == ["drain"]
    server.drained.set()
    assert await ended(running) == 0
    assert server.life == ["drain", "drained", "stop"]


async def test_a_second_signal_stops_at_once() -> None:
    server = Server()
    running = started(server)
    await server.watched.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await server.draining.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert await ended(running) == 0
    assert server.life == ["drain", "stop"]


async def test_an_engine_that_breaks_ends_the_process() -> None:
    server = Server()
    running = started(server)
    server.breaks.set()
    assert await ended(running) == 1
    assert server.life == ["stop"]


def test_the_address_replaces_the_files(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("{host: 0.0.0.0, port: 1, grace_s: 3}")
    assert main.read(ServiceConfig, path, None) == ServiceConfig(host="0.0.0.0", port=1, grace_s=3)
    read = main.read(ServiceConfig, path, "[::1]:70")
    assert read == ServiceConfig(host="[::1]", port=70, grace_s=3)
    for address in ("localhost", "http://localhost:70", ":70"):
        with pytest.raises(ConfigError) as caught:
            main.read(ServiceConfig, path, address)
        assert caught.value.param == "address"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", "prot: unknown key"),
        ("- 1", "configuration"),
        ("a: [", "expected"),
        (None, "No such file"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    text: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def serve(config: ServiceConfig) -> Server:
        raise AssertionError

    path = tmp_path / "service.yaml"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr("sys.argv", ["service", "--config", str(path)])
    assert main.main("echo", ServiceConfig, serve) == 2
    assert said in capsys.readouterr().err


def test_weights_that_cannot_be_used_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(config: ServiceConfig) -> Server:
        raise WeightsError("no weights")

    (tmp_path / "service.yaml").write_text("{}")
    monkeypatch.setattr("sys.argv", ["service", "--config", str(tmp_path / "service.yaml")])
    assert main.main("echo", ServiceConfig, serve) == 2
    assert capsys.readouterr().err == "echo: no weights\n"


def test_help_names_the_page_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["service", "--help"])
    with pytest.raises(SystemExit):
        main.main("echo", ServiceConfig, None)
    assert "docs/configuration.md" in capsys.readouterr().out
