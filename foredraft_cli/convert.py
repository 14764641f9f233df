"""`foredraft convert`: a GGUF file becomes a folder that `verifier.service.model` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foredraft.gguf.convert import convert
from foredraft_cli.progress import bar

app = typer.Typer(add_completion=False)


@app.command()
def main(
    gguf_file: Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
) -> None:
    """Convert a GGUF file of Llama, Qwen2 or Qwen3 to a model folder in bfloat16."""
    with bar(f"converting {gguf_file.name}") as progress:
        convert(gguf_file, folder, progress)
    typer.echo(f"{gguf_file} is now {folder}")
