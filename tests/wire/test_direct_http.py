"""The ingress's own HTTP port: what Serve's proxy would have done is done, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deployments.ingress.direct.config import DirectConfig
from deployments.ingress.direct.places import Places
from deployments.ingress.direct.server import DirectServer
from deployments.ingress.openai.routes import application, handlers
from deployments.ingress.rpc.config import TlsConfig
from foredraft.errors import ConfigError
from tests.support.certificates import write_certificates
from tests.support.cluster import free_port
from tests.support.orchestrator.peers import ScriptedVerifier, continuation
from tests.support.waiting import eventually
from tests.unit.ingress.test_routes import TOKENIZER, TOKENIZER_FILE, generations

PROMPT = [3, 1, 4, 1, 5]
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}


async def health() -> dict[str, Any]:
    return {}


@asynccontextmanager
async def served(
    verifier: ScriptedVerifier, places: Places | None = None, tls: TlsConfig | None = None
) -> AsyncIterator[DirectServer]:
    app = application(handlers(generations(verifier), TOKENIZER_FILE), health)
    server = DirectServer(app, DirectConfig(port=0, tls=tls), places or Places(8, 0, 1.0))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def calling(
    verifier: ScriptedVerifier, places: Places | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        served(verifier, places) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http,
    ):
        yield http


def slow(verifier: ScriptedVerifier) -> None:
    async def before(index: int) -> None:
        await asyncio.sleep(0.02)

    verifier.before = before


async def test_a_whole_answer_and_a_stream_on_one_connection() -> None:
    async with calling(ScriptedVerifier()) as http:
        async with http.post("/v1/completions", json=BODY) as answer:
            text = (await answer.json())["choices"][0]["text"]
        async with http.post("/v1/completions", json=BODY | {"stream": True}) as answer:
            lines = [line async for line in answer.content if line.strip()]
        async with http.get("/nowhere") as answer:
            assert answer.status == 404 and (await answer.json())["error"]["message"]
    assert text == TOKENIZER.decode(list(continuation(tuple(PROMPT), 12)))
    assert lines[-1] == b"data: [DONE]\n"


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_ends_his_session(stream: bool) -> None:
    verifier = ScriptedVerifier()
    slow(verifier)
    async with calling(verifier) as http:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.15):
                    body = BODY | {"max_tokens": 4000, "stream": stream}
                    async with http.post("/v1/completions", json=body) as answer:
                        await answer.read()
        await eventually(lambda: not verifier.live)
        assert len(verifier.opens) == 3
        verifier.before = None
        async with http.post("/v1/completions", json=BODY) as answer:
            assert answer.status == 200


async def test_beyond_its_bound_requests_are_refused_and_health_answers() -> None:
    verifier = ScriptedVerifier()
    slow(verifier)
    async with calling(verifier, Places(1, 0, 1.0)) as http:
        body = BODY | {"max_tokens": 400}
        first = asyncio.create_task(http.post("/v1/completions", json=body))
        await eventually(lambda: bool(verifier.live))
        async with http.post("/v1/completions", json=BODY) as answer:
            assert answer.status == 429 and answer.headers["retry-after"]
            assert (await answer.json())["error"]["code"] == 429
        async with http.get("/health/live") as answer:
            assert answer.status == 200
        assert (await first).status == 200
        async with http.post("/v1/completions", json=BODY) as answer:
            assert answer.status == 200


async def test_beyond_its_bound_requests_wait_and_one_that_is_left_does_not() -> None:
    verifier = ScriptedVerifier()
    slow(verifier)
    async with calling(verifier, Places(1, 2, 30.0)) as http:
        first = asyncio.create_task(http.post("/v1/completions", json=BODY | {"max_tokens": 100}))
        await eventually(lambda: bool(verifier.live))
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.05):
                await http.post("/v1/completions", json=BODY)
        waiting = [asyncio.create_task(http.post("/v1/completions", json=BODY)) for _ in range(2)]
        statuses = [answer.status for answer in await asyncio.gather(first, *waiting)]
        assert statuses == [200] * 3 and len(verifier.opens) == 3


async def test_who_waits_too_long_is_told_to_come_back() -> None:
    verifier = ScriptedVerifier()
    slow(verifier)
    async with calling(verifier, Places(1, 2, 0.05)) as http:
        first = asyncio.create_task(http.post("/v1/completions", json=BODY | {"max_tokens": 400}))
        await eventually(lambda: bool(verifier.live))
        async with http.post("/v1/completions", json=BODY) as answer:
            assert answer.status == 429 and answer.headers["retry-after"]
        assert (await first).status == 200


async def test_each_answer_names_its_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ray.serve"):
        async with calling(ScriptedVerifier()) as http:
            for given, kept in (("mine", True), ("a\tb", False), ("x" * 200, False)):
                headers = {"x-request-id": given}
                async with http.post("/v1/completions", json=BODY, headers=headers) as answer:
                    assert (answer.headers["x-request-id"] == given) == kept
                    assert len(answer.headers["x-request-id"]) in (4, 32)
    lines = [record.getMessage() for record in caplog.records if record.name == "ray.serve"]
    assert lines[0].startswith("mine POST /v1/completions 200 ")


async def test_https_and_its_files(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    tls = TlsConfig(keyfile=tmp_path / "server.key", certfile=tmp_path / "server.crt")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with served(ScriptedVerifier(), tls=tls) as server, aiohttp.ClientSession() as http:
        url = f"https://localhost:{server.port}/health/live"
        async with http.get(url, ssl=trusting) as answer:
            assert answer.status == 200
    lost = tls.model_copy(update={"keyfile": tmp_path / "lost.key"})
    with pytest.raises(ConfigError, match=r"ingress\.direct\.tls"):
        async with served(ScriptedVerifier(), tls=lost):
            pass


async def test_a_port_in_use_is_named() -> None:
    async with served(ScriptedVerifier()) as server:
        app = application(handlers(generations(ScriptedVerifier()), TOKENIZER_FILE), health)
        other = DirectServer(app, DirectConfig(port=server.port), Places(1, 0, 1.0))
        with pytest.raises(ConfigError, match="cannot listen"):
            await other.start()


async def test_an_idle_connection_is_closed_after_its_time_and_never_before() -> None:
    app = application(handlers(generations(ScriptedVerifier()), TOKENIZER_FILE), health)
    for keep_alive_s, closed in ((0.05, True), (90.0, False)):
        config = DirectConfig(port=0, keep_alive_timeout_s=keep_alive_s)
        server = DirectServer(app, config, Places(8, 0, 1.0))
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: it\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.2)
        rest = reader.read() if closed else reader.read(1)
        assert await asyncio.wait_for(rest, 1.0)
        assert reader.at_eof() is closed
        writer.close()
        await server.stop()


async def test_streams_end_with_an_error_event_when_the_server_stops() -> None:
    verifier = ScriptedVerifier()
    slow(verifier)
    made = generations(verifier)
    app = application(handlers(made, TOKENIZER_FILE), health)
    server = DirectServer(app, DirectConfig(port=0), Places(8, 0, 1.0))
    await server.start()
    url = f"http://127.0.0.1:{server.port}/v1/completions"
    body = BODY | {"max_tokens": 4000, "stream": True}
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
        await answer.content.readline()
        await made.stopping.drain(0.05)
        await server.stop()
        lines = [line async for line in answer.content if line.strip()]
    assert b"the server is stopping" in lines[-1] or b"the server is stopping" in lines[-2]
    await eventually(lambda: not verifier.live)


async def test_a_successor_takes_the_port_over_and_no_request_is_lost() -> None:
    def server(port: int) -> DirectServer:
        app = application(handlers(generations(ScriptedVerifier()), TOKENIZER_FILE), health)
        return DirectServer(app, DirectConfig(port=port), Places(64, 0, 1.0))

    port = free_port()
    url = f"http://127.0.0.1:{port}/v1/completions"
    old, new = server(port), server(port)
    await old.start()
    statuses: list[int] = []
    stop = asyncio.Event()

    async def client() -> None:
        # With connections that are kept open, and with new ones.
        async with aiohttp.ClientSession() as http:
            while not stop.is_set():
                async with http.post(url, json=BODY) as answer:
                    await answer.read()
                statuses.append(answer.status)

    async with aiohttp.ClientSession() as http:
        async with http.post(url, json=BODY) as answer:
            assert "close" not in answer.headers.get("connection", "")
        async with asyncio.TaskGroup() as clients:
            for _ in range(8):
                clients.create_task(client())
            await eventually(lambda: len(statuses) > 20)
            await new.start()
            handing_over = asyncio.create_task(old.hand_over(1.0, 5.0))
            # The connection from before is answered once more, and closed.
            await eventually(lambda: len(statuses) > 60)
            async with http.post(url, json=BODY) as answer:
                assert (answer.status, answer.headers["connection"]) == (200, "close")
            async with http.post(url, json=BODY) as answer:
                assert "close" not in answer.headers.get("connection", "")
            await handing_over
            await old.stop()
            seen = len(statuses)
            await eventually(lambda: len(statuses) > seen + 20)
            stop.set()
    await new.stop()
    assert set(statuses) == {200}
