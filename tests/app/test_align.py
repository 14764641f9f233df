"""`foredraft align` as it is run, for a target not ours: whole, killed and resumed, and to a
response with drafts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deployments.config import ROOT, ServeFile
from deployments.serve.cluster import RunningCluster, running
from foredraft_align.progress import read_log
from tests.app.test_checkpoints import configuration
from tests.support.align.texts import write_chat_target
from tests.support.cluster import pids, post

TARGET = "Unknown"
COMMAND = [sys.executable, "-c", "from foredraft_cli.main import main; main()", "align"]
# The shortest form: each option as small as it may be.
SHORT = {
    "workers": 2,
    "steps": 12,
    "texts": 16,
    "max-tokens": 80,
    "max-prompt": 16,
    "layers": 1,
    "block": 4,
    "rows": 16,
    "batch": 4,
    "shortlist": 128,
    "checkpoint-steps": 3,
}


def start(folder: Path, out: str, *flags: str, target: str = TARGET) -> subprocess.Popen[str]:
    """Run the command in a folder, where both names are relative, as they are typed."""
    options = SHORT | {"target": target, "out": out}
    named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    # A Ray of its own, not the ring's.
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    return subprocess.Popen(
        [*COMMAND, *named, *flags],
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def kill_behind(process: subprocess.Popen[str], log: Path, steps: int) -> None:
    """Kill all of a run once its log has so many steps."""
    end = time.monotonic() + 600
    while len(read_log(log)) < steps:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    # The command first: it would begin lost workers again.
    os.killpg(process.pid, signal.SIGKILL)
    for worker in pids("ray::RayTrainWorker"):
        os.kill(worker, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the target in it."""
    made = tmp_path_factory.mktemp("align")
    write_chat_target(made / TARGET, "qwen3")
    return made


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """What a run leaves that nothing interrupts."""
    said = finish(start(folder, "whole"))
    assert "texts to train on" in said and "held out" in said
    return folder / "whole"


def test_a_run_leaves_a_drafter_its_curves_and_its_card(whole: Path) -> None:
    assert {"config.json", "model.safetensors", "MODEL_CARD.md", "curves.png"} <= {
        path.name for path in whole.iterdir()
    }
    assert [each.step for each in read_log(whole / "run" / "log.jsonl")] == list(range(1, 13))
    assert "| 12 x 4, 16 |" in (whole / "MODEL_CARD.md").read_text()


def test_a_killed_run_resumes_to_the_same_weights(folder: Path, whole: Path) -> None:
    killed = folder / "killed"
    shutil.copytree(whole / "texts", killed / "texts")
    log = killed / "run" / "log.jsonl"
    kill_behind(start(folder, killed.name), log, steps=5)
    assert not (killed / "model.safetensors").exists()
    finish(start(folder, killed.name, "--resume"))
    assert [each.step for each in read_log(log)] == list(range(1, 13))
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


async def test_the_drafter_is_served(cluster: RunningCluster, folder: Path, whole: Path) -> None:
    target = folder / TARGET
    file = configuration("unknown", target, whole).model_dump()
    [application] = file["applications"]
    application["args"]["drafter"]["service"] = {"model": str(whole), "target": str(target)}
    with running(ServeFile.model_validate(file)) as served:
        body = {"prompt": "def mean(", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        status, answer = await post(served, body | {"return_token_ids": True})
        assert status == 200, answer
        _, plain = await post(
            served, body | {"return_token_ids": True, "speculative": {"enabled": False}}
        )
    assert answer["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    assert answer["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0


def test_a_wrong_target_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "out", target="none")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.strip() == "foredraft: none is no model folder"
