"""What may be wrong before anything runs: the configuration, and the machine it is for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from deployments.config import ServeFile, read
from deployments.preflight import check_models
from deployments.serve.cluster import check_ports
from foredraft.errors import ConfigError
from foredraft_cli.doctor.checks import Finding
from foredraft_kernels.loader import load_kernels


def examine(path: Path) -> list[Finding]:
    """Return what is wrong with a configuration file on this machine."""
    try:
        file = read(path)
        check_models(file.application.args)
    except ConfigError as error:
        return [Finding("configuration", str(error), "docs/configuration.md has every key")]
    return [*_port(file), *_kernels(file), *_threads(file)]


def _port(file: ServeFile) -> Iterator[Finding]:
    try:
        check_ports(file)
    except ConfigError as error:
        change = f"stop what listens there (a running Foredraft does), or change {error.param}.port"
        yield Finding("port", str(error), change)


def _kernels(file: ServeFile) -> Iterator[Finding]:
    on_cpu = str(file.application.args.verifier.service.device) == "cpu"
    if on_cpu and load_kernels() is None:
        what = "the compiled kernels are not built: the CPU path is several times slower"
        yield Finding("no_kernels", what, "install a C compiler, then Foredraft again")


def _threads(file: ServeFile) -> Iterator[Finding]:
    threads, cores = file.application.args.verifier.service.threads, os.cpu_count() or 1
    if threads is not None and threads > cores:
        what = f"verifier.service.threads is {threads}, and there are {cores} cores"
        yield Finding("threads", what, f"set it to {cores} at most")
