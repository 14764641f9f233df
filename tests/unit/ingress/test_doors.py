"""The doors of the HTTP ingress: keys, limits, origins, errors of one shape."""

from __future__ import annotations

import asyncio
import io
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.guard import OPEN
from deployments.ingress.doors.install import install
from deployments.ingress.doors.keys import Key, Keys, add_key, read_keys
from deployments.ingress.doors.limits import Allowance
from deployments.ingress.openai.routes import application, handlers
from foredraft.errors import ConfigError
from tests.support.http import listening
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.support.waiting import eventually
from tests.unit.ingress.test_routes import TOKENIZER_FILE, generations


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> FastAPI:
    async def health() -> dict[str, Any]:
        return {}

    return application(handlers(generations(ScriptedVerifier()), TOKENIZER_FILE), health)


@asynccontextmanager
async def served(
    app: FastAPI, keys: tuple[Key, ...] = (), origins: tuple[str, ...] = (), clock: Any = None
) -> AsyncIterator[aiohttp.ClientSession]:
    install(app, Admission(keys, clock or Clock()), origins)
    async with listening(app) as url, aiohttp.ClientSession(url) as http:
        yield http


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_a_key_is_kept_as_its_hash_in_a_file_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    alice, bob = add_key(file, "alice"), add_key(file, "bob", 60, 2)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert alice not in file.read_text() and alice.startswith("fd-")
    keys = Keys(read_keys(file))
    assert [keys.of(key) and keys.of(key).name for key in (alice, bob)] == ["alice", "bob"]
    assert keys.of(alice[:-1]) is None and keys.of("") is None and keys.of("\udcff") is None
    with pytest.raises(ConfigError, match="alice"):
        add_key(file, "alice")
    with pytest.raises(ConfigError) as refused:
        add_key(file, "a b")
    assert refused.value.param == "name"


@pytest.mark.parametrize(
    "text",
    ["", "{", "keys: []", "keys: [{name: a}]", "keys: [{name: a, sha256: zz}]", "other: 1"],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="keys_file"):
        read_keys(file)
    with pytest.raises(ConfigError, match="keys_file"):
        read_keys(tmp_path / "none.yaml")
    one = {"name": "a", "sha256": "0" * 64}
    file.write_text(yaml.safe_dump({"keys": [one, one]}))
    with pytest.raises(ConfigError, match="two keys"):
        read_keys(file)


async def test_every_route_but_health_needs_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    known = [add_key(file, name) for name in ("alice", "bob")]
    app = made()
    found: list[Any] = app.routes
    routes = [(method, route.path) for route in found for method in route.methods - {"HEAD"}]
    assert ("POST", "/v1/chat/completions") in routes and ("GET", "/openapi.json") in routes
    async with served(app, read_keys(file)) as http:
        for method, path in [*routes, ("GET", "/nothing"), ("DELETE", "/v1/models")]:
            for headers in ({}, bearer("fd-wrong"), {"authorization": f"Basic {known[0]}"}):
                async with http.request(method, path, headers=headers) as answer:
                    if path in OPEN:
                        assert answer.status == 200
                        continue
                    assert answer.status == 401, path
                    assert answer.headers["www-authenticate"] == "Bearer"
                    error = (await answer.json())["error"]
                    assert (error["type"], error["code"]) == ("authentication_error", 401)
            for key in known:
                async with http.request(method, path, headers=bearer(key)) as answer:
                    assert answer.status != 401


async def test_a_keys_requests_a_minute() -> None:
    key = Key(name="a", sha256=digest_of("k"), requests_per_minute=12)
    clock = Clock()
    async with served(made(), (key,), clock=clock) as http:

        async def status() -> tuple[int, str | None]:
            async with http.get("/v1/models", headers=bearer("k")) as answer:
                return answer.status, answer.headers.get("retry-after")

        assert [await status() for _ in range(3)] == [(200, None), (200, None), (429, "5")]
        clock.now += 5
        assert [await status() for _ in range(2)] == [(200, None), (429, "5")]


async def test_a_request_counts_until_its_stream_ends_or_its_client_leaves() -> None:
    app, go_on = FastAPI(), asyncio.Event()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await go_on.wait()
            yield b"b"

        return StreamingResponse(parts())

    key = Key(name="a", sha256=digest_of("k"), concurrent_requests=1)
    async with served(app, (key,)) as http:

        async def free() -> bool:
            async with http.get("/nothing", headers=bearer("k")) as answer:
                return answer.status == 404

        async with http.get("/stream", headers=bearer("k")) as first:
            assert first.status == 200 and not await free()
            go_on.set()
            assert await first.read() == b"ab"
        assert await free()
        go_on.clear()
        async with http.get("/stream", headers=bearer("k")) as left:
            await left.content.readany()
            assert not await free()
            left.close()
        await eventually(free)


def test_an_allowance_never_holds_more_than_a_burst() -> None:
    allowance = Allowance(requests_per_minute=60)
    waits = [allowance.take(1e6) for _ in range(12)]
    assert waits == [None] * 10 + [1.0, 1.0]
    slow = Allowance(requests_per_minute=0.5)
    assert slow.take(0.0) is None
    assert slow.take(60.0) == 60.0


async def test_other_origins_are_let_in_only_where_they_are_named() -> None:
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    key = Key(name="a", sha256=digest_of("k"))
    async with served(made()) as http, http.get("/version", headers=asked) as answer:
        assert "access-control-allow-origin" not in answer.headers
    async with served(made(), (key,), ("https://a.example",)) as http:
        async with http.options("/v1/completions", headers=asked) as answer:
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = asked | {"origin": "https://b.example"}
        async with http.options("/v1/completions", headers=other) as answer:
            assert "access-control-allow-origin" not in answer.headers


async def test_every_failure_has_the_one_shape() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (1 << 20)

    async with served(made()) as http:
        big = "x" * (5 << 20)
        cases: list[tuple[str, str, Any, int]] = [
            ("GET", "/nothing", None, 404),
            ("GET", "/v1/completions", None, 405),
            ("POST", "/v1/completions", b"{", 400),
            ("POST", "/v1/chat/completions", b"[]", 400),
            ("POST", "/v1/completions", io.BytesIO(big.encode()), 413),
            ("POST", "/v1/completions", parts(), 413),
        ]
        for method, path, data, status in cases:
            headers = {"content-type": "application/json"}
            async with http.request(method, path, data=data, headers=headers) as answer:
                assert answer.status == status, path
                error = (await answer.json())["error"]
                assert set(error) == {"message", "type", "param", "code"}
                assert (status == 405) == ("allow" in answer.headers)


def test_the_description_has_the_failures() -> None:
    for path in made().openapi()["paths"].values():
        for operation in path.values():
            assert {"4XX", "5XX"} <= set(operation["responses"])
            assert "422" not in operation["responses"]


def digest_of(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode()).hexdigest()
