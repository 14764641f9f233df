"""`foredraft check`: what is wrong with deployment files, offline and before anything starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from foredraft.errors import ConfigError
from foredraft_cli.check import helm_values, ray_up, serve_file
from foredraft_cli.check.fault import Fault
from foredraft_cli.check.fit import Node
from foredraft_cli.check.kuberay import objects
from foredraft_cli.check.kuberay.crd import Definitions
from foredraft_cli.check.reading import documents

app = typer.Typer(add_completion=False)

NO_DEFINITIONS = Definitions([])

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Files of Ray Serve, `ray up`, RayCluster and RayService, or values of a Helm chart "
        "beside it, in any order; `-` is what `helm template` writes.",
        allow_dash=True,
    ),
]
CrdOption = Annotated[
    list[Path],
    typer.Option(
        "--crd",
        help="A file of the cluster's CustomResourceDefinitions (`kubectl get crd NAME -o yaml`), "
        "to hold objects to.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(files: FilesArgument, crd: CrdOption = [], as_json: JsonOption = False) -> None:  # noqa: B006 - typer's
    """Find what is wrong with deployment files; exit 1 where something is.

    A Ray Serve file beside a cluster's has to fit its nodes.
    """
    found = examined(files, Definitions(crd))
    if as_json:
        faults = [{"file": str(file), **fault._asdict()} for file, fault in found]
        typer.echo(json.dumps(faults, indent=1))
    else:
        for file, (path, what) in found:
            typer.echo(f"{file}: {path}: {what}" if path else f"{file}: {what}")
        typer.echo(f"{len(files)} files, {len(found)} faults")
    if found:
        raise typer.Exit(1)


def examined(
    files: Sequence[Path], definitions: Definitions = NO_DEFINITIONS
) -> list[tuple[Path, Fault]]:
    """Return the faults of files, which are about one cluster."""
    found: list[tuple[Path, Fault]] = []
    read: list[tuple[Path, Any]] = []
    for file in files:
        try:
            read += ((file, values) for values in documents(file))
        except ConfigError as error:
            found.append((file, Fault("", str(error))))
    nodes = _nodes([values for _, values in read])
    for file, values in read:
        found += ((file, fault) for fault in _faults(values, file, nodes))
        if isinstance(values, dict):
            found += ((file, fault) for fault in definitions.faults(values))
    return found


def _faults(values: Any, file: Path, nodes: Sequence[Node] | None) -> list[Fault]:
    if not isinstance(values, dict):
        return [Fault("", "holds no keys")]
    if helm_values.is_values(file):
        return helm_values.faults(values, file.parent)
    if "applications" in values:
        return serve_file.faults(values, file.parent, nodes)
    if values.get("kind") in objects.KINDS:
        return objects.faults(values, file.parent)
    if "cluster_name" in values or "provider" in values:
        return ray_up.faults(values)
    if "kind" in values and "apiVersion" in values:
        # Another object of Kubernetes, beside one of ours.
        return []
    return [Fault("", "is neither of Ray Serve nor of `ray up` nor of KubeRay")]


def _nodes(read: Sequence[Any]) -> list[Node] | None:
    """Return the nodes of the one file that has some."""
    for values in read:
        if not isinstance(values, dict):
            continue
        if "cluster_name" in values:
            return ray_up.nodes(values)
        if values.get("kind") == "RayCluster":
            return objects.nodes(values)
    return None
