"""`foredraft serve` as a process: how it stops, and what it says where it cannot start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from deployments.config import ROOT
from deployments.ingress.doors.guard import OPEN
from deployments.ingress.doors.keys import add_key
from tests.support.certificates import write_certificates
from tests.support.cluster import free_port

PROMPT = "def area(width, height):\n"
SECRET = "hushhushhush"
BODY = {"prompt": f"{SECRET} = 1\n", "max_tokens": 4, "seed": 1}
_RUN = [sys.executable, "-c", "from foredraft_cli.main import main; main()", "serve", "--config"]


def configuration(folder: Path, port: int, **args: Any) -> Path:
    entry = {"import_path": "deployments.app:build", "args": args}
    values = {"http_options": {"port": port}, "applications": [entry]}
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@contextmanager
def serving(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A server of its own, on a Ray of its own, once it says that it is ready."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*_RUN, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if " is ready at " in line:
                    break
            yield process
        finally:
            process.kill()


def streaming(max_tokens: int) -> dict[str, Any]:
    return {
        "prompt": PROMPT,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
        "speculative": {"enabled": False},
    }


async def lines_of(
    http: aiohttp.ClientSession, url: str, max_tokens: int, begun: asyncio.Event
) -> list[str]:
    """The data of a stream; begun once there is some."""
    lines: list[str] = []
    async with http.post(f"{url}/v1/completions", json=streaming(max_tokens)) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                lines.append(line.decode().strip())
            if len(lines) == 2:
                begun.set()
    return lines


class Server(NamedTuple):
    """A server with keys, HTTPS and logs in JSON."""

    process: subprocess.Popen[str]
    file: Path
    url: str
    key: str

    def session(self, key: str = "") -> aiohttp.ClientSession:
        """A client that trusts the server's certificate."""
        trusting = ssl.create_default_context(cafile=self.file.with_name("ca.crt"))
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting), headers=headers)

    def doctor(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the doctor."""
        code = "from foredraft_cli.main import main; main()"
        certificate = {"SSL_CERT_FILE": str(self.file.with_name("ca.crt"))}
        return subprocess.run(
            [sys.executable, "-c", code, "doctor", self.url],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | certificate | environment,
            check=False,
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    write_certificates(folder)
    key = add_key(folder / "keys.yaml", "alice")
    port = free_port()
    file = configuration(folder, port, ingress={"keys_file": "keys.yaml", "drain_s": 2})
    values = yaml.safe_load(file.read_text())
    values["logging_config"] = {"encoding": "JSON"}
    values["http_options"] |= {"ssl_keyfile": "server.key", "ssl_certfile": "server.crt"}
    file.write_text(yaml.safe_dump(values))
    with serving(file) as process:
        yield Server(process, file, f"https://localhost:{port}", key)


@pytest.mark.slow
def test_its_address_is_its_own(server: Server) -> None:
    busy = subprocess.run([*_RUN, str(server.file)], capture_output=True, text=True, cwd=ROOT)
    assert busy.returncode == 2
    port = server.url.rpartition(":")[2]
    assert busy.stderr.splitlines()[-1] == (
        f"foredraft: http_options: cannot listen on 127.0.0.1:{port}: Address already in use"
    )


@pytest.mark.slow
async def test_with_keys_over_https_every_route_but_health_needs_one(server: Server) -> None:
    url, key = server.url, server.key
    async with server.session() as http:

        async def status(method: str, path: str, given: str = "") -> int:
            headers = {"authorization": f"Bearer {given}"} if given else {}
            async with http.request(method, url + path, json=BODY, headers=headers) as answer:
                return answer.status

        async with http.get(
            f"{url}/openapi.json", headers={"authorization": f"Bearer {key}"}
        ) as answer:
            described = (await answer.json())["paths"]
        routes = [(verb.upper(), path) for path, verbs in described.items() for verb in verbs]
        others = [("GET", path) for path in ("/", "/playground/main.js", "/docs", "/nowhere")]
        for method, path in (*routes, *others):
            wanted = 200 if path in OPEN else 401
            assert await status(method, path) == wanted, path
            assert await status(method, path, key + "x") == wanted, path
        assert await status("POST", "/v1/completions", key) == 200
        with pytest.raises(aiohttp.ClientError):
            await http.get(url.replace("https", "http") + "/health")


@pytest.mark.slow
def test_the_doctor_names_a_missing_key(server: Server) -> None:
    locked = server.doctor()
    assert locked.returncode == 1 and "no_key" in locked.stdout
    assert "identical: 6 of 6" in server.doctor(FOREDRAFT_API_KEY=server.key).stdout


@pytest.mark.slow
async def test_the_logs_hold_no_word_of_a_prompt_and_no_key(server: Server) -> None:
    async with (
        server.session(server.key) as http,
        http.post(f"{server.url}/v1/completions", json=BODY) as answer,
    ):
        assert answer.status == 200
    logs = Path("/tmp/ray/session_latest/logs")
    for each in logs.rglob("*"):
        if each.is_file():
            text = each.read_text(errors="replace")
            assert SECRET not in text and server.key not in text, each
    [ingress] = logs.glob("serve/replica_foredraft_ingress_*.log")
    lines = [json.loads(line) for line in ingress.read_text().splitlines()]
    assert any("/v1/completions 200" in line["message"] for line in lines)


@pytest.mark.slow
async def test_sigterm_drains_it(server: Server) -> None:
    """Not ready at once, no new requests; short streams end, a long one with an error event.

    Its process group gets the signal, as from a terminal.
    """
    process, url = server.process, server.url
    async with server.session(server.key) as http:
        begun = [asyncio.Event() for _ in range(4)]
        streams = [
            asyncio.create_task(lines_of(http, url, length, event))
            for length, event in zip((24, 24, 24, 1900), begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        os.killpg(process.pid, signal.SIGTERM)
        until = asyncio.get_running_loop().time() + 30
        while True:
            async with http.get(f"{url}/health/ready") as answer:
                if answer.status == 503:
                    assert (await answer.json())["error"]["message"] == "the server is stopping"
                    break
            assert asyncio.get_running_loop().time() < until
        async with http.post(f"{url}/v1/completions", json=streaming(4)) as answer:
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert (await answer.json())["error"]["type"] == "unavailable_error"
        ended = await asyncio.gather(*streams)
        await http.close()
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert all(lines[-1] == "data: [DONE]" for lines in ended)
        for lines in ended[:3]:
            last = json.loads(lines[-2].removeprefix("data: "))
            assert last["choices"][0]["finish_reason"] == "length"
        error = json.loads(ended[3][-2].removeprefix("data: "))["error"]
        assert error["message"] == "the server is stopping"


@pytest.mark.slow
def test_a_replica_that_refuses_its_configuration_is_one_line(tmp_path: Path) -> None:
    service = {"model": "models/embedded/target", "device": "cuda:99"}
    file = configuration(tmp_path, free_port(), verifier={"service": service})
    done = subprocess.run([*_RUN, str(file)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("foredraft: verifier: ")
    assert "cuda:99" in last
    assert "Traceback" not in done.stderr
