"""Starting beside others: their port, their Ray, their applications."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import serve

from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve import cluster, environment
from deployments.serve.platform import applications
from foredraft.errors import ConfigError, Unavailable
from tests.support.cluster import free_port


def test_a_busy_port_is_named_though_its_holder_would_share_it() -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use"):
            cluster.check_port("127.0.0.1", port, "http_options")
    cluster.check_port("127.0.0.1", port, "http_options")


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(ConfigError, match=r"203\.0\.113\.1:8000"):
        cluster.check_port("203.0.113.1", 8000, "http_options")


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_our_own_instance_says_that_we_are_ready() -> None:
    health = {"instance": "ours", "drafter": None}
    with answering(json.dumps(health).encode()) as url:
        assert cluster.wait_until_ready(url, ["another", "ours"]) == health
    for body in (b'{"instance": "theirs"}', b'{"status": "ok"}', b"[]", b"<html>"):
        with answering(body) as url, pytest.raises(Unavailable, match=f"another server.*{url}"):
            cluster.wait_until_ready(url, ["ours"])


class FakeServe:
    """Ray and Serve as far as `running` asks them, on a cluster that was there before or not."""

    def __init__(self, patch: pytest.MonkeyPatch, started: bool, others: tuple[str, ...]) -> None:
        self.done: list[str] = []
        self.connected = False
        applications = {name: SimpleNamespace(deployments={}) for name in others}
        status = SimpleNamespace(proxies={"node": "HEALTHY"}, applications=applications)
        results = SimpleNamespace(results=lambda timeout_s: ["ours"])
        handle = SimpleNamespace(broadcast=lambda name, *_: self.note(name) or results)
        patch.setattr(ray, "is_initialized", lambda: self.connected)
        patch.setattr(ray, "init", self.connect)
        patch.setattr(ray, "shutdown", lambda: self.note("disconnect"))
        patch.setattr(serve, "status", lambda: status)
        patch.setattr(serve, "start", lambda **_: None)
        patch.setattr(serve, "run", lambda *_, **__: handle)
        patch.setattr(serve, "delete", lambda name: self.note(f"delete {name}"))
        patch.setattr(cluster, "forget_serve", lambda: self.note("forget Serve"))
        patch.setattr(cluster, "started_here", lambda: started)
        patch.setattr(cluster, "wait_until_ready", lambda *_: {"drafter": None})

    def connect(self, *_: Any, **__: Any) -> None:
        self.connected = True

    def note(self, what: str) -> None:
        self.done.append(what)


def embedded() -> ServeFile:
    """The embedded pair's file, on a port that no server has meanwhile."""
    values = read(EMBEDDED_FILE).model_dump()
    values["applications"][0]["args"]["ingress"]["direct"]["port"] = free_port()
    return ServeFile.model_validate(values)


@pytest.mark.parametrize("started", [True, False])
def test_of_a_cluster_that_was_there_only_our_application_goes(
    monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    fake = FakeServe(monkeypatch, started, ("theirs",))
    with cluster.running(embedded()):
        pass
    goes = "forget Serve" if started else "delete foredraft"
    assert fake.done == ["instance", "drain", goes, "disconnect"]


def test_an_application_of_our_name_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeServe(monkeypatch, False, ("foredraft",))
    refused = pytest.raises(ConfigError, match="foredraft runs on this cluster already")
    with refused, cluster.running(embedded()):
        pass
    assert fake.done == ["disconnect"]


def test_a_replica_that_cannot_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeServe(monkeypatch, True, ())
    message = (
        "The deployment failed to start:\nTraceback (most recent call last):\n  File\nE: why\n"
    )
    statuses = [
        SimpleNamespace(name="verifier", message=message),
        SimpleNamespace(name="ingress", message=""),
    ]
    found = {"foredraft": SimpleNamespace(deployment_statuses=statuses)}

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Deploying application foredraft failed\n" * 60)

    monkeypatch.setattr(serve, "run", fail)
    monkeypatch.setattr(applications, "application_status", found.__getitem__)
    with pytest.raises(Unavailable) as error, cluster.running(embedded()):
        pass
    assert str(error.value) == "verifier: E: why"


def test_pins_are_left_out_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    environment.pin((0, 1))


def test_what_ray_was_started_without_is_said_and_made_up_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(os, "getpriority", lambda *_: 15)
    asked: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda _, __, value: asked.append(value))
    environment.check_environment()
    assert "RAY_worker_niceness=0" in caplog.text
    environment.prepare_replica()
    assert asked == [0]
    caplog.clear()
    environment.check_environment()
    assert not caplog.text

    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    environment.prepare_replica()
    assert "niceness" in caplog.text
