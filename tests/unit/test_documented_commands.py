"""Every command and every configuration in the documents is one that the programs take.

What is quick is run for real, here or against the cluster (tests/app/test_documented_commands.py);
of what is not, make says what it would do, and a program's own parser takes the arguments. A
command of another kind fails until it is said here how it is checked.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from denoiser_service.config import DenoiserConfig
from deployments.config import ServeFile
from drafter_service.config import DrafterConfig
from foredraft.rpc.main import read
from foredraft.strict import parse
from foredraft_cli.main import app
from foredraft_cli.subcommands import SUBCOMMANDS
from tests.support.documents import AT_THE_CLUSTER, ROOT, SHELLS, Block, Command, blocks, commands
from verifier_service.config import VerifierConfig

LANGUAGES = {*SHELLS, "yaml", "python", "json", "text", ""}
SERVICES: dict[str, Any] = {
    "denoiser_service": DenoiserConfig,
    "drafter_service": DrafterConfig,
    "verifier_service": VerifierConfig,
}


def test_no_block_is_in_a_language_that_no_test_reads() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES


@cache
def ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_make(command: Command) -> None:
    """The Makefile has the targets; the commands themselves are those of CI or take minutes."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    assert ran("make", "--dry-run", "--always-make", *command.words[1:])


def of_foredraft(command: Command) -> None:
    """The command exists and takes the options."""
    words = command.words
    if words[1].startswith("-"):
        with pytest.raises(typer.Exit):
            typer.main.get_command(app).make_context("foredraft", list(words[1:]))
        return
    named = {subcommand.name: subcommand for subcommand in SUBCOMMANDS}
    if words[1] in named:
        takes(typer.main.get_command(named[words[1]].app()), words[2:], command.whole)
    else:
        takes(typer.main.get_command(app), words[1:], command.whole)


def takes(program: Any, words: tuple[str, ...], whole: bool) -> None:
    """Fail unless a program, or one of its own, takes the arguments, whatever files they name."""
    own = getattr(program, "commands", {})
    if own and words and not words[0].startswith("-"):
        takes(own[words[0]], words[1:], whole)
        return
    options = {option for parameter in program.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    if whole:
        values, left, _ = program.make_parser(typer.Context(program)).parse_args(list(words))
        assert not left
        missing = [each.name for each in program.params if each.required]
        assert all(values.get(name) is not None for name in missing)


def of_a_service(command: Command) -> None:
    """The service takes the options, and its configuration if it is one of the repository."""
    words = command.words
    package = words[2]
    usage = ran(sys.executable, "-m", package, "--help")
    for word in words[3:]:
        assert not word.startswith("--") or word in usage
    for path in (ROOT / word for word in words if word.endswith(".yaml")):
        read(SERVICES[package], path, None)


def of_a_module(command: Command) -> None:
    """The module exists, runs as a program, and knows the options."""
    words = command.words
    spec = importlib.util.find_spec(words[2])
    assert spec is not None and spec.origin is not None
    if Path(spec.origin).name == "__init__.py":
        spec = importlib.util.find_spec(f"{words[2]}.__main__")
        assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    assert "__main__" in source
    for option in (word for word in words[3:] if word.startswith("--")):
        assert re.search(rf"{option}\b|\b{option[2:].replace('-', '_')}\b", source), option


def of_pytest(command: Command) -> None:
    """The files are there."""
    words = command.words
    for word in words[3:]:
        assert word.startswith("-") or (ROOT / word.partition("::")[0]).exists(), word


def of_a_program(command: Command) -> None:
    """Code on the command line: it compiles, and what it imports and sets up is there."""
    words = command.words
    code = ast.parse(words[2])
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            assert all(importlib.import_module(each.name) for each in node.names)
    if "setup()" in words[2]:
        ran(sys.executable, "-W", "ignore", "-c", words[2], *words[3:], "--help")


def of_pip(command: Command) -> None:
    """What an installation holds is the matter of tests/unit/test_wheel.py and of CI."""
    words = command.words
    assert words[:2] == ("pip", "install")
    assert all(
        word.startswith("-") or word in (".", ".[align]", "pre-commit", "openai")
        for word in words[2:]
    )


def of_the_cluster(command: Command) -> None:
    """Run in the app ring (tests/app/test_documented_commands.py)."""
    assert command.words[0] in AT_THE_CLUSTER


PYTHON = ("python", ".venv/bin/python", "python3")
# The first that fits a command says how it is checked.
WAYS: list[tuple[Callable[[tuple[str, ...]], bool], Callable[[Command], None]]] = [
    (lambda words: words[0] == "make", of_make),
    (lambda words: words[0].endswith("pip"), of_pip),
    (lambda words: words[0].endswith("foredraft") and len(words) > 1, of_foredraft),
    (lambda words: words[0] in AT_THE_CLUSTER, of_the_cluster),
    (lambda words: words[0] in PYTHON and words[1:3] == ("-m", "pytest"), of_pytest),
    (lambda words: words[0] in PYTHON and words[1] == "-m" and words[2] in SERVICES, of_a_service),
    (lambda words: words[0] in PYTHON and words[1] == "-m", of_a_module),
    (lambda words: words[0] in PYTHON and words[1] == "-c", of_a_program),
]


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_command_is_one_that_its_program_takes(command: Command) -> None:
    for fits, check in WAYS:
        if fits(command.words):
            check(command)
            return
    pytest.fail(f"no test covers `{command}`: say in WAYS how it is checked")


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.page.name)
def test_a_configuration_is_one_that_the_server_takes(block: Block) -> None:
    """A page may show the part that it is about: an application's arguments."""
    values = yaml.safe_load(block.text)
    if "applications" not in values:
        values = {"applications": [{"args": values}]}
    parse(ServeFile, values)


@pytest.mark.parametrize("block", blocks("python", "json"), ids=lambda block: block.page.name)
def test_code_can_be_read(block: Block) -> None:
    ast.parse(block.text) if block.language == "python" else yaml.safe_load(block.text)
