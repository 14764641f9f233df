"""The `foredraft` command."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from deployments.config import DIFFUSION_FILE, EMBEDDED_FILE, read
from foredraft import __version__
from foredraft.errors import ForedraftError
from foredraft_cli import subcommands
from foredraft_cli.options import ConfigOption, ServedOption, paired, served

app = typer.Typer(
    name="foredraft",
    help="Serve autoregressive models faster with diffusion drafters; not one token changes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"foredraft {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take what stands before a command."""


@app.command()
def serve(
    config: ServedOption = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder or GGUF file of a target, instead of a file.")
    ] = None,
    drafter: Annotated[Path | None, typer.Option(help="Folder of a drafter for it.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on, with --model.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port, with --model.")] = 8000,
    device: Annotated[str, typer.Option(help="cpu or cuda, with --model.")] = "cpu",
) -> None:
    """Start the cluster on this machine and serve until interrupted."""
    from deployments.serve.cluster import deployed, running

    if model is None and drafter is None:
        file = read(served(config))
    else:
        file = paired(config, model, drafter, host, port, device)
    with running(file, start=deployed) as cluster:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        typer.echo(f"{file.application.args.name} is ready at {cluster.url}")
        typer.echo(f"  {cluster.health}")
        if cluster.refusal:
            typer.echo(f"  the drafter is refused, decoding is plain: {cluster.refusal}")
        stop.wait()
        typer.echo("shutting down")


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads standard input.")],
    config: ConfigOption = EMBEDDED_FILE,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens.")] = 128,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    top_k: Annotated[int, typer.Option(min=0)] = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    plain: Annotated[bool, typer.Option(help="Decode plainly, without the drafter.")] = False,
) -> None:
    """Continue one prompt in this process, without Ray, on the same engines."""
    from foredraft.types import SamplingParams
    from foredraft_cli.generate import run

    text = sys.stdin.read() if prompt == "-" else prompt
    sampling = SamplingParams(temperature, top_k, top_p, min_p, seed)
    asyncio.run(run(read(config).application.args, text, sampling, max_tokens, plain))


@app.command()
def demo(
    config: ServedOption = None,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of each comparison.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=8, help="Most tokens of an answer.")] = 128,
    diffusion: Annotated[
        bool, typer.Option("--diffusion", help="Of a diffusion target beside the other one.")
    ] = False,
) -> None:
    """Stream an answer from a local cluster, then compare with plain decoding."""
    if diffusion:
        from foredraft_cli.demo_diffusion import run

        file = config or DIFFUSION_FILE
    else:
        from foredraft_cli.demo import run

        file = served(config)
    asyncio.run(run(read(file), prompts, max_tokens))


def main() -> None:
    """Run the command line; one of our own errors is one line and exit status 2."""
    subcommands.add_to(app)
    try:
        app()
    except ForedraftError as error:
        typer.echo(f"foredraft: {error}", err=True)
        raise SystemExit(2) from None
