"""An application's replicas without Ray: both targets, drafters, a canary, ingresses, in one
process. What Serve does to them is done here: start, reconfigure, stop, and one that takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tokenizers import Tokenizer

from deployments.canary import routing
from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.ingress.openai import app as ingress_app
from deployments.ingress.openai.app import Ingress
from deployments.serve import replica as replica_module
from deployments.serve.parts import (
    CANARY,
    DENOISER,
    DRAFTER,
    INGRESS,
    VERIFIER,
    deployment_options,
)
from deployments.serve.replica import ModelServiceReplica
from foredraft.errors import Unavailable
from tests.support.cluster import free_port
from tests.support.random_drafter import with_random_weights
from tests.support.tiny_models import write_tiny
from tests.support.waiting import eventually
from tests.unit.canary.test_trial import Memory

_PACKAGES = {
    DRAFTER: "drafter_service",
    CANARY: "drafter_service",
    VERIFIER: "verifier_service",
    DENOISER: "denoiser_service",
}


class Handle:
    """Of a deployment, as far as an ingress uses it."""

    def __init__(self) -> None:
        self.replicas: list[Any] = []

    def __getattr__(self, method: str) -> Any:
        class Method:
            @staticmethod
            async def remote(*args: Any) -> Any:
                return getattr(self.replicas[0], method)(*args)

        return Method


class NoTensors:
    """A carrier that carries nothing."""

    store = b""

    def __init__(self, config: Any) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {}

    def pays(self, size: int, reader: str) -> bool:
        return False

    def free(self, references: Any) -> None:
        assert not tuple(references)


class Nowhere:
    """Where metrics end."""

    def __init__(self, metrics: Any) -> None:
        pass

    def add(self, samples: Sequence[Any]) -> None:
        pass


class Gone:
    """A replica whose process has ended: nothing is left to be deleted."""


class Serve:
    """Starts replicas of a configuration, and hands them another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: ServeFile) -> None:
        self.options = deployment_options(file.application.args)
        self.handles = {name: Handle() for name in (DRAFTER, CANARY, VERIFIER, DENOISER)}
        self.memory = Memory()
        self.stops: dict[int, asyncio.Event] = {}
        self.settled = 0
        self._starting: Any = None

        async def choose(handle: Handle) -> str:
            if not handle.replicas:
                raise Unavailable("no replica is running")
            return str(handle.replicas[-1].record_replica_metadata()["grpc"])

        async def is_running(handle: Handle) -> bool:
            return bool(handle.replicas)

        async def export_stats(*_: Any) -> None:
            await asyncio.Event().wait()

        async def is_introduced(_: str) -> bool:
            return True

        for module in (ingress_app, replica_module):
            monkeypatch.setattr(module, "own_config", lambda: self._starting)
            monkeypatch.setattr(module, "session_token", lambda: "token")
            monkeypatch.setattr(module, "pin", lambda cpus: None)
            monkeypatch.setattr(module, "prepare_replica", lambda: None)
            monkeypatch.setattr(module, "freeze_heap", lambda: None)
        monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
        monkeypatch.setattr(replica_module, "ObjectStore", NoTensors)
        monkeypatch.setattr(replica_module, "export_stats", export_stats)
        monkeypatch.setattr(replica_module, "introduce_drafter", lambda address: None)
        monkeypatch.setattr(replica_module, "is_introduced", is_introduced)
        monkeypatch.setattr(ingress_app, "choose_address", choose)
        monkeypatch.setattr(ingress_app, "is_running", is_running)
        monkeypatch.setattr(ingress_app, "Export", Nowhere)
        monkeypatch.setattr(ingress_app, "application_name", lambda: "foredraft")
        monkeypatch.setattr(ingress_app, "ClusterMemory", lambda: self.memory)
        monkeypatch.setattr(ingress_app, "settle", self._settle)
        monkeypatch.setattr(ingress_app, "stopping", self._stopping)
        monkeypatch.setattr(routing, "_INTERVAL_S", 0.05)

    def _settle(self, application: str) -> None:
        self.settled += 1

    async def _stopping(self) -> None:
        event = asyncio.Event()
        self.stops[len(self.stops)] = event
        await event.wait()

    async def start(self, name: str) -> Any:
        """Start a replica of a deployment."""
        self._starting = self.options[name]["user_config"]
        if name == INGRESS:
            made: Any = Ingress.__new__(Ingress)
            handles = [self.handles[part] for part in (DRAFTER, CANARY, VERIFIER)]
            second = self.handles[DENOISER] if DENOISER in self.options else None
            await made.__init__(*handles, second)
        else:
            made = ModelServiceReplica.__new__(ModelServiceReplica)
            await made.__init__(_PACKAGES[name])
            self.handles[name].replicas.append(made)
        await made.reconfigure(self._starting)
        return made

    async def stop(self, name: str, made: Any) -> None:
        """Stop a replica: not chosen any more, then its end."""
        if name != INGRESS:
            self.handles[name].replicas.remove(made)
        await made.__del__()
        made.__class__ = Gone


def configured(port: int, **drafter: Any) -> ServeFile:
    values = read(EMBEDDED_FILE).model_dump()
    args = values["applications"][0]["args"]
    args["ingress"] |= {"direct": {"port": port}, "drain_s": 5}
    args["orchestrator"] |= {"adl": {"name": "fixed", "k": 8}, "ngram": {"enabled": False}}
    # Beside other tests two threads would wait for each other.
    args["verifier"]["service"] |= {"numerics": "fast", "threads": 1}
    args["drafter"] |= drafter
    return ServeFile.model_validate(values)


@contextlib.asynccontextmanager
async def ended(serve: Serve) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for name, handle in serve.handles.items():
            for made in tuple(handle.replicas):
                await serve.stop(name, made)


BODY = {
    "prompt": "def area(width, height):\n",
    "max_tokens": 48,
    "temperature": 0.8,
    "seed": 5,
    "ignore_eos": True,
    "return_token_ids": True,
}


async def answered(http: aiohttp.ClientSession, **more: Any) -> dict[str, Any]:
    async with http.post("/v1/completions", json=BODY | more) as answer:
        found: dict[str, Any] = await answer.json()
        assert answer.status == 200, found
        return found


def report(found: dict[str, Any]) -> dict[str, Any]:
    return dict(found["metrics"]["speculative_decoding"])


async def test_options_change_in_place_and_an_ingress_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    serve = Serve(monkeypatch, configured(port))
    async with ended(serve), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        await serve.start(DRAFTER)
        await serve.start(VERIFIER)
        old = await serve.start(INGRESS)
        plain = await answered(http, speculative={"enabled": False})
        tokens = plain["choices"][0]["token_ids"]
        found = await answered(http)
        assert found["choices"][0]["token_ids"] == tokens
        assert report(found)["num_accepted_draft_tokens"] > 0

        changed = serve.options[INGRESS]["user_config"]
        changed = changed | {"orchestrator": changed["orchestrator"] | {"proposal": "coupled"}}
        await old.reconfigure(changed)
        found = await answered(http)
        assert found["choices"][0]["token_ids"] == tokens
        assert report(found)["proposal"] == "coupled"

        new = await serve.start(INGRESS)
        assert old.instance() != new.instance()
        stop = asyncio.Event()
        answers: list[Any] = []

        async def client(stream: bool) -> None:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as own:
                while not stop.is_set():
                    async with own.post("/v1/completions", json=BODY | {"stream": stream}) as got:
                        text = await got.text()
                    answers.append((got.status, "[DONE]" in text or not stream, "error" in text))

        async with asyncio.TaskGroup() as clients:
            for number in range(4):
                clients.create_task(client(number % 2 == 0))
            await eventually(lambda: len(answers) > 4)
            serve.stops[0].set()
            await eventually(lambda: not old._generations.stopping.ready)
            await serve.stop(INGRESS, old)
            seen = len(answers)
            await eventually(lambda: len(answers) > seen + 4)
            stop.set()
        assert set(answers) == {(200, True, False)}
        # Nobody takes over from the last one: it refuses.
        draining = asyncio.create_task(new.drain(5))
        async with http.get("/health/ready") as answer:
            assert answer.status == 503 and answer.headers["retry-after"] == "1"
        await draining
        serve.stops[1].set()
        await serve.stop(INGRESS, new)


async def test_sessions_move_from_replicas_that_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    serve = Serve(monkeypatch, configured(port))
    async with ended(serve), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        first = [(name, await serve.start(name)) for name in (DRAFTER, VERIFIER)]
        ingress = await serve.start(INGRESS)
        tokens = (await answered(http, max_tokens=400))["choices"][0]["token_ids"]
        running = asyncio.create_task(answered(http, max_tokens=400))
        for name, old in first:
            await serve.start(name)
            await serve.stop(name, old)
        found = await running
        assert found["choices"][0]["token_ids"] == tokens
        await ingress.drain(1)


async def test_a_bad_canary_is_rolled_back_for_what_it_drafts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = free_port()
    model = read(EMBEDDED_FILE).application.args.drafter.service.model
    canary = {
        "share": 0.5,
        "service": {"model": with_random_weights(model, tmp_path)},
        "comparison": {"min_sessions": 10, "max_sessions": 40, "margin": 0.3},
    }
    serve = Serve(monkeypatch, configured(port, canary=canary))
    async with ended(serve), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        for name in (DRAFTER, CANARY, VERIFIER):
            await serve.start(name)
        ingress = await serve.start(INGRESS)
        tokens = (await answered(http, speculative={"enabled": False}))["choices"][0]["token_ids"]

        async def ask() -> None:
            while not serve.settled:
                assert (await answered(http))["choices"][0]["token_ids"] == tokens

        async with asyncio.timeout(120), asyncio.TaskGroup() as clients:
            for _ in range(4):
                clients.create_task(ask())
        [verdict] = [value for name, value in serve.memory.kept.items() if "verdict" in name]
        assert b"rolled back" in verdict and b"accepted tokens per round" in verdict
        async with http.get("/metrics") as answer:
            assert "foredraft_canary_outcome -1.0" in await answer.text()
        await ingress.drain(1)


async def test_a_diffusion_model_is_served_beside_the_other_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = free_port()
    file = configured(port)
    values = file.model_dump()
    args = values["applications"][0]["args"]
    tokenizer = file.application.args.tokenizer_file
    vocab = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    folder = write_tiny(
        tmp_path / "blocks",
        vocab_size=vocab,
        block_diffusion={"block_length": 8, "mask_token_id": 1},
    )
    shutil.copy(tokenizer, folder / "tokenizer.json")
    args["denoiser"] = {
        "service": {"model": folder, "kv_tokens": 4096},
        "unmasking": {"kind": "static", "per_step": 2},
        "decoding": {"calls": 1, "retry": {"initial_s": 0.01}},
    }
    serve = Serve(monkeypatch, ServeFile.model_validate(values))
    async with ended(serve), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        for name in (DRAFTER, VERIFIER, DENOISER):
            await serve.start(name)
        made = await serve.start(INGRESS)
        other = await answered(http)
        found = await answered(http, model="blocks")
        assert found["model"] == "blocks" and other["model"] != "blocks"
        tokens = found["choices"][0]["token_ids"]
        assert len(tokens) == 48 != tokens.count(1)
        plain = await answered(http, model="blocks", speculative={"enabled": False})
        assert plain["choices"][0]["token_ids"] == tokens
        streamed = BODY | {"model": "blocks", "stream": True}
        async with http.post("/v1/completions", json=streamed) as answer:
            events = [line async for line in answer.content if line.startswith(b"data: {")]
        parts = [json.loads(event[6:])["choices"][0]["token_ids"] or [] for event in events]
        assert list(itertools.chain(*parts)) == tokens and len(parts) > 6
        for change in REFUSED:
            async with http.post("/v1/completions", json=BODY | {"model": "blocks"} | change) as no:
                error = (await no.json())["error"]
                assert (no.status, error["param"]) == (400, next(iter(change)))
        async with http.get("/v1/models") as answer:
            names = [each["id"] for each in (await answer.json())["data"]]
            assert names == [other["model"], "blocks"]
        async with http.get("/health") as answer:
            assert (await answer.json())["denoiser"]["model"] == "blocks"
        # A replica is lost amid a text: the session goes on at another one.
        first = serve.handles[DENOISER].replicas[0]
        await serve.start(DENOISER)
        # It would end this process.
        first._watch.cancel()
        [gone, text] = await asyncio.gather(
            first._server.stop(), answered(http, model="blocks"), return_exceptions=True
        )
        assert gone is None and text["choices"][0]["token_ids"] == tokens
        await made.drain(5)


REFUSED: list[dict[str, Any]] = [
    {"logprobs": 1},
    {"best_of": 2},
    {"top_k": 3},
    {"top_p": 0.5},
    {"min_p": 0.1},
    {"presence_penalty": 1},
    {"frequency_penalty": 1},
    {"repetition_penalty": 2},
    {"min_tokens": 3},
    {"logit_bias": {"5": 1}},
    {"allowed_token_ids": [5]},
    {"suffix": "x"},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"regex": "a"}},
    {"max_tokens": 1000},
]
