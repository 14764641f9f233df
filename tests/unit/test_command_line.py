"""The `foredraft` command: its version, and commands that only a checkout has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from foredraft import __version__
from foredraft.errors import ConfigError
from foredraft_cli import subcommands
from foredraft_cli.subcommands import SUBCOMMANDS

_RUN = [sys.executable, "-c", "from foredraft_cli.main import main; main()"]
_ROOT = Path(__file__).parents[2]


def foredraft(*arguments: str) -> str:
    done = subprocess.run([*_RUN, *arguments], capture_output=True, text=True, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def test_the_version_is_printed() -> None:
    assert foredraft("--version") == f"foredraft {__version__}\n"


def test_help_lists_every_command() -> None:
    text = foredraft("--help")
    for name in ("serve", "generate", "demo", "audit", "convert", "fetch", "bench", "train"):
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.slow
def test_a_subcommand_has_options_of_its_own() -> None:
    assert "--streams" in foredraft("audit", "--help")


@pytest.mark.parametrize("name", ["bench", "train"])
def test_outside_a_checkout_a_command_says_that_it_needs_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subcommands, "_CHECKOUT", tmp_path)
    [subcommand] = [one for one in SUBCOMMANDS if one.name == name]
    with pytest.raises(ConfigError, match="checkout"):
        subcommand.app()
