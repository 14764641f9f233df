"""Run one drafter: python -m drafter_service CONFIG.yaml [key=value ...]"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import yaml

from drafter_service.config import DrafterConfig
from drafter_service.server import serve
from foredraft.errors import ForedraftError
from foredraft.strict import parse

GRACE_S = 10.0


async def run(config: DrafterConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    server = await serve(config)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.drain(GRACE_S)
    await server.stop()


def main(arguments: list[str]) -> int:
    """Read the YAML file named first, overridden by key=value; serve. Return the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    values: dict[str, object] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals:
            values[key] = yaml.safe_load(value)
        else:
            with open(argument) as file:
                values.update(yaml.safe_load(file) or {})
    try:
        asyncio.run(run(parse(DrafterConfig, values)))
    except ForedraftError as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
