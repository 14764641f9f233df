"""Commands with options of their own, imported when they are run.

`bench` and `train` work on the repository itself: they are no part of an installation.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from foredraft.errors import ConfigError

_CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A name, the module whose `app` it runs, and its line of help."""

    name: str
    module: str
    help: str

    def app(self) -> typer.Typer:
        """Return the command's app; raise ConfigError where it needs a checkout and has none."""
        package = self.module.split(".")[0]
        if not (_CHECKOUT / package).is_dir():
            raise ConfigError(
                f"`foredraft {self.name}` runs from a checkout of the repository after "
                f"`make install`: the package {package} is no part of an installation"
            )
        if str(_CHECKOUT) not in sys.path:
            sys.path.append(str(_CHECKOUT))
        found: typer.Typer = importlib.import_module(self.module).app
        return found


SUBCOMMANDS = (
    Subcommand("align", "foredraft_align.cli", "Teach a drafter for a target."),
    Subcommand(
        "audit",
        "foredraft_cli.audit.command",
        "Compare speculative with plain decoding, token by token.",
    ),
    Subcommand(
        "check", "foredraft_cli.check.command", "Find what is wrong with deployment files, offline."
    ),
    Subcommand("chat", "foredraft_cli.chat", "Talk to a running server in the terminal."),
    Subcommand(
        "conformance",
        "foredraft_cli.conformance.command",
        "Hold a drafter or verifier to the protocol.",
    ),
    Subcommand(
        "convert",
        "foredraft_cli.convert",
        "Convert a GGUF file to a model folder.",
    ),
    Subcommand(
        "deploy", "foredraft_cli.cluster.deploy", "Change what runs on a cluster to a file."
    ),
    Subcommand(
        "doctor", "foredraft_cli.doctor.command", "Find why speculation is off or slow on a server."
    ),
    Subcommand(
        "certificates", "foredraft_cli.certificates", "Make certificates for mutual TLS inside."
    ),
    Subcommand("chaos", "foredraft_cli.chaos.command", "Kill, stop and slow a cluster under load."),
    Subcommand("keys", "foredraft_cli.keys", "Make API keys."),
    Subcommand("fetch", "foredraft_cli.fetch", "Get a small instruct model to serve (93 MB)."),
    Subcommand(
        "record",
        "foredraft_cli.simulation.record",
        "Record what a server's rounds do, to simulate it.",
    ),
    Subcommand(
        "simulate",
        "foredraft_cli.simulation.simulate",
        "Simulate a cluster under a trace, in virtual time.",
    ),
    Subcommand(
        "status", "foredraft_cli.cluster.status", "Show what runs on a cluster, and why so much."
    ),
    Subcommand(
        "tune", "foredraft_cli.simulation.tune", "Find an autoscaling policy's cheapest parameters."
    ),
    Subcommand("bench", "bench.commands.app", "Measure against plain decoding (in a checkout)."),
    Subcommand(
        "train", "training.cli", "Train the embedded target, drafter and proxy (in a checkout)."
    ),
)


def add_to(app: typer.Typer) -> None:
    """Register every subcommand; each parses its own arguments."""
    for subcommand in SUBCOMMANDS:
        _add(app, subcommand)


def _add(app: typer.Typer, subcommand: Subcommand) -> None:
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(
        subcommand.name, help=subcommand.help, add_help_option=False, context_settings=passed_on
    )
    def run(context: typer.Context) -> None:
        subcommand.app()(context.args, prog_name=f"foredraft {subcommand.name}")
