"""The documents' commands that are quick, run as printed, against the pair that they start."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from deployments.config import EMBEDDED_FILE
from deployments.serve.cluster import RunningCluster
from tests.support.documents import AT_THE_CLUSTER, ROOT, Block, Command, blocks, commands
from tests.support.waiting import DEADLINE_S

SERVER = "http://127.0.0.1:8000"
REQUESTS = [each for each in commands() if each.words[0] in AT_THE_CLUSTER]
GENERATED = [each for each in commands() if each.whole and each.words[1:2] == ("generate",)]


async def output(*words: str) -> str:
    """Run a program in the repository; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 3 * DEADLINE_S)
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest.mark.parametrize("command", REQUESTS, ids=str)
async def test_a_request_is_answered(chat: RunningCluster, command: Command) -> None:
    words = [word.replace(SERVER, chat.url) for word in command.words]
    assert any(chat.url in word for word in words)
    out = await output(*words)
    if "data: " in out:
        assert out.rstrip().endswith("data: [DONE]")
    else:
        assert "error" not in json.loads(out)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.page.name)
async def test_code_runs(chat: RunningCluster, block: Block) -> None:
    await output(sys.executable, "-c", block.text.replace(SERVER, chat.url))


@pytest.mark.parametrize("command", GENERATED, ids=str)
async def test_a_prompt_goes_on_without_a_cluster(command: Command) -> None:
    words = [str(EMBEDDED_FILE) if word == "my.yaml" else word for word in command.words[1:]]
    run = "from foredraft_cli.main import main; main()"
    assert (await output(sys.executable, "-c", run, *words)).strip()
