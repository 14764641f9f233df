"""docs/security.md as it is written: its commands, its configuration, and what it says holds."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from deployments.config import ROOT, ServeFile, read
from deployments.ingress.doors.guard import OPEN
from deployments.preflight import check_models
from deployments.serve.cluster import RunningCluster, running
from deployments.serve.memory import session_token
from deployments.serve.platform.replicas import choose_address
from drafter_service.client import DrafterClient
from foredraft.errors import ConfigError, ForedraftError, PermissionDenied
from foredraft.rpc.transport import PLAIN_TEXT, Role, transport_of
from orchestrator.length.config import FixedConfig
from tests.support.certificates import write_certificates
from tests.support.cluster import free_port, post
from tests.support.waiting import eventually

PAGE = (ROOT / "docs/security.md").read_text()
CHAPTER = PAGE.partition("## Run it with keys, TLS and a network policy")[2].partition("\n## ")[0]
BODY = {"prompt": "def mean(values):\n", "max_tokens": 48, "seed": 3, "return_token_ids": True}
BOMB = {
    "prompt": "x",
    "max_tokens": 16,
    "n": 16,
    "structured_outputs": {"regex": "(a{1000}){1000}"},
}


class Walk(NamedTuple):
    """A cluster that was configured as the page says."""

    folder: Path
    file: ServeFile
    key: str
    cluster: RunningCluster

    @property
    def url(self) -> str:
        return f"https://localhost:{self.file.application.args.ingress.direct.port}"

    def session(self) -> aiohttp.ClientSession:
        """A client that trusts the server's certificate."""
        trusting = ssl.create_default_context(cafile=self.folder / "ca.crt")
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting, limit=0))

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


def block(language: str) -> str:
    """The chapter's first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", CHAPTER, re.DOTALL)
    assert found is not None
    return found[1]


def commanded(folder: Path) -> str:
    """Run the chapter's commands in a folder; return what they print."""
    printed = ""
    for line in block("sh").splitlines():
        name, *words = line.split()
        assert name == "foredraft"
        code = "from foredraft_cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        printed += done.stdout
    return printed


def configured(folder: Path) -> ServeFile:
    """The chapter's configuration, beside an application that runs already: its own name, the
    embedded pair, and drafts at every load.
    """
    values = yaml.safe_load(block("yaml"))
    [application] = values["applications"]
    args = application["args"]
    application |= {"name": "sealed", "route_prefix": "/sealed"}
    application["import_path"] = "deployments.app:build"
    args["ingress"]["direct"] |= {"host": "127.0.0.1", "port": free_port()}
    args["orchestrator"] = {"adl": FixedConfig(k=5).model_dump(), "verifier_led_rounds": 16}
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    return read(file)


@pytest.fixture(scope="module")
def walk(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    write_certificates(folder)
    [key] = re.findall(r"fd-\S+", commanded(folder))
    file = configured(folder)
    with running(file) as started:
        yield Walk(folder, file, key, started)


async def test_without_a_key_nothing_but_health_answers(walk: Walk) -> None:
    async with walk.session() as http:

        async def status(method: str, path: str, headers: dict[str, str]) -> int:
            async with http.request(method, walk.url + path, json=BODY, headers=headers) as answer:
                return answer.status

        async with http.get(f"{walk.url}/openapi.json", headers=walk.headers) as answer:
            described = (await answer.json())["paths"]
        routes = [(verb.upper(), path) for path, verbs in described.items() for verb in verbs]
        others = [("GET", path) for path in ("/", "/playground/main.js", "/docs", "/nowhere")]
        for method, path in (*routes, *others):
            wanted = 200 if path in OPEN else 401
            assert await status(method, path, {}) == wanted, path
            wrong = {"authorization": f"Bearer {walk.key}x"}
            assert await status(method, path, wrong) == wanted, path
        assert await status("POST", "/v1/completions", walk.headers) == 200
        with pytest.raises(aiohttp.ClientError):
            await http.get(walk.url.replace("https", "http") + "/health")


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_drafts_and_verdicts_come_through(
    cluster: RunningCluster, walk: Walk, temperature: float
) -> None:
    body = BODY | {"temperature": temperature}
    asked = body | {"speculative": {"rounds": True}}
    _, plain = await post(cluster, body | {"speculative": {"enabled": False}})

    async def led() -> bool:
        async with walk.session() as http:
            url = f"{walk.url}/v1/completions"
            async with http.post(url, json=asked, headers=walk.headers) as answered:
                [choice] = (await answered.json())["choices"]
        assert choice["token_ids"] == plain["choices"][0]["token_ids"]
        drafted = [each for each in choice["rounds"] if each["draft"]["tokens"]]
        return "verifier" in {each["led_by"] for each in drafted}

    # A verifier asks the drafter itself, with a certificate of its own. A stall of the machine
    # makes drafts late: then a request or two decode plainly.
    await eventually(led, every_s=0.5)


async def test_inside_a_certificate_a_role_and_the_token_are_asked_for(walk: Walk) -> None:
    from ray import serve

    handle = serve.get_deployment_handle("drafter", app_name="sealed")
    address, certificates = await choose_address(handle), walk.folder / "certificates"

    async def asked(transport: Any, token: str) -> None:
        async with DrafterClient(address, transport=transport, token=token) as client:
            await client.info()

    own = transport_of(certificates, Role.ORCHESTRATOR)
    await asked(own, session_token())
    with pytest.raises(ForedraftError, match="token"):
        await asked(own, "")
    with pytest.raises(PermissionDenied):
        await asked(transport_of(certificates, Role.DRAFTER), session_token())
    with pytest.raises(ForedraftError):
        await asked(PLAIN_TEXT, session_token())


async def test_a_keys_limits_and_a_bomb_are_answered_as_described(walk: Walk) -> None:
    async with walk.session() as http:

        async def status(body: dict[str, Any]) -> int:
            url = f"{walk.url}/v1/completions"
            async with http.post(url, json=body, headers=walk.headers) as answer:
                return answer.status

        assert await status(BOMB) == 400
        # The page's key may have 16 requests at once.
        long = BODY | {"max_tokens": 96, "ignore_eos": True}
        found = await asyncio.gather(*(status(long) for _ in range(20)))
        assert sorted(found)[:16] == [200] * 16 and 429 in found


def test_missing_certificates_are_named_before_anything_starts(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    (tmp_path / "certificates").mkdir()
    with pytest.raises(ConfigError, match=r"ca\.crt") as caught:
        check_models(configured(tmp_path).application.args)
    assert caught.value.param == "mtls"
