"""`foredraft serve` as a process: how it stops, and what it says where it cannot start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from deployments.config import ROOT
from tests.support.cluster import free_port

PROMPT = "def area(width, height):\n"
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
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if " is ready at " in line:
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.slow
async def test_a_stream_that_outlasts_the_grace_period_ends_with_an_error(tmp_path: Path) -> None:
    port = free_port()
    file = configuration(tmp_path, port, ingress={"drain_s": 0.5})
    body = {
        "prompt": PROMPT,
        "max_tokens": 1900,
        "ignore_eos": True,
        "stream": True,
        "speculative": {"enabled": False},
    }
    url = f"http://127.0.0.1:{port}/v1/completions"
    lines: list[bytes] = []
    with serving(file) as process:
        busy = subprocess.run([*_RUN, str(file)], capture_output=True, text=True, cwd=ROOT)
        async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
            async for line in answer.content:
                if line.strip():
                    lines.append(line)
                if len(lines) == 3:
                    process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert busy.returncode == 2
    assert busy.stderr.splitlines()[-1] == (
        f"foredraft: http_options: cannot listen on 127.0.0.1:{port}: Address already in use"
    )
    assert lines[-1] == b"data: [DONE]\n"
    error = json.loads(lines[-2].removeprefix(b"data: "))["error"]
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
