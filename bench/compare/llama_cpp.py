"""llama.cpp's own HTTP server as a peer: one process per file and way of decoding."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.compare.rows import Run
from foredraft.errors import ConfigError, Unavailable

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
# One stream on two threads. Each request reads its whole prompt, as ours do.
_OPTIONS = (
    *("--host", "127.0.0.1", "--threads", "2", "--threads-batch", "2", "--parallel", "1"),
    *("--ctx-size", "4096", "--cache-ram", "0", "--offline", "--no-webui"),
)
NGRAM = (
    *("--spec-type", "ngram-simple"),
    *("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8"),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A GGUF file served in one way: its row name, and the server's options for it."""

    name: str
    file: Path
    options: tuple[str, ...] = ()


class LlamaClient:
    """Completions of one running server."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def complete(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Decode one prompt of token ids greedily."""
        body = {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "temperature": 0.0,
            "cache_prompt": False,
            "return_tokens": True,
        }
        start = time.perf_counter()
        async with self._http.post(f"{self._url}/completion", json=body) as response:
            answer = await response.json()
            seconds = time.perf_counter() - start
        return to_run(answer, seconds)


def to_run(answer: dict[str, Any], seconds: float) -> Run:
    """Return the run of one answer; raise Unavailable with the server's words for an error.

    Forward passes that verified a draft are not counted by the server: every token that was not
    accepted from a draft took one.
    """
    if "error" in answer:
        raise Unavailable(f"llama-server: {answer['error']}")
    tokens = tuple(answer["tokens"])
    timings = answer["timings"]
    drafted, kept = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    return Run(tokens, seconds, kept, drafted, len(tokens) - kept if drafted else 0)


def find(option: Path | None) -> Path:
    """Return the server's program, from the option or $PATH; raise ConfigError without one."""
    path = shutil.which(str(option or "llama-server"))
    if path is None:
        raise ConfigError(
            f"{option or 'llama-server'} is no program: build it from llama.cpp and name it by "
            "--server",
            param="server",
        )
    return Path(path)


def speculates(server: Path) -> bool:
    """Return whether this version of the server can draft from n-grams."""
    usage = subprocess.run([server, "--help"], capture_output=True, text=True)  # noqa: S603
    return NGRAM[1] in usage.stdout


@asynccontextmanager
async def serving(server: Path, variant: Variant) -> AsyncIterator[LlamaClient]:
    """Serve a variant on a free port until the context ends; raise Unavailable if it ends first."""
    port = _free_port()
    command = (str(server), "--model", str(variant.file), "--port", str(port), *_OPTIONS)
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(  # noqa: ASYNC220, S603
            (*command, *variant.options), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http:
                url = f"http://127.0.0.1:{port}"
                if not await _ready(http, url, process):
                    log.seek(0)
                    raise Unavailable(f"llama-server with {variant.file.name}: {_why(log)}")
                yield LlamaClient(http, url)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _ready(http: aiohttp.ClientSession, url: str, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            async with http.get(f"{url}/health") as response:
                if response.status == 200:
                    return True
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    return False


def _why(log: Iterable[str]) -> str:
    """Return the first line that names an error, else the last one."""
    lines = [line.strip() for line in log] or ["it ended without a word"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
