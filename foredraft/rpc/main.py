"""The command line of a service without Ray: python -m SERVICE --config FILE."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import yaml

from foredraft.errors import ConfigError, ForedraftError
from foredraft.limits import is_address
from foredraft.memory import freeze_heap
from foredraft.rpc.config import ServiceConfig
from foredraft.rpc.server import ServiceServer
from foredraft.strict import parse

log = logging.getLogger(__name__)

C = TypeVar("C", bound=ServiceConfig)


def main(service: str, config: type[C], serve: Callable[[C], Awaitable[ServiceServer]]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status.

    2: the configuration or the weights cannot be used. 1: the engine broke.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {service}_service",
        description=f"Serve one {service} by gRPC.",
        epilog="The keys of the file are in docs/configuration.md.",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="a YAML file")
    parser.add_argument("--address", metavar="HOST:PORT", help="where to listen instead")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        return asyncio.run(run(serve, read(config, options.config, options.address)))
    except (ForedraftError, OSError, yaml.YAMLError) as error:
        print(f"{service}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        # Before it served.
        return 130


def read(config: type[C], path: Path, address: str | None) -> C:
    """Return a file's configuration; address, HOST:PORT, replaces the file's host and port.

    Raise ConfigError naming the first bad value, OSError, YAMLError.
    """
    values = yaml.safe_load(path.read_text())
    if address is not None and isinstance(values, dict):
        if not is_address(address):
            raise ConfigError("--address must be HOST:PORT", param="address")
        values["host"], _, values["port"] = address.rpartition(":")
    return parse(config, values)


async def run(serve: Callable[[C], Awaitable[ServiceServer]], config: C) -> int:
    """Serve until a signal, then drain and stop; a second signal cuts the draining short."""
    server = await serve(config)
    freeze_heap()
    signals = asyncio.Semaphore(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signals.release)
    error = await _first(server.broken(), signals.acquire())
    if isinstance(error, ForedraftError):
        log.error("the service ends: %s", error)
    else:
        await _first(server.drain(), signals.acquire())
    await server.stop()
    return int(isinstance(error, ForedraftError))


async def _first(*waits: Coroutine[Any, Any, Any]) -> Any:
    """Return what the first to end returns; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    return done.pop().result()
