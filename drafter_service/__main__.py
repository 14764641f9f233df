"""A drafter without Ray: python -m drafter_service --config FILE (YAML)."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

import yaml

from drafter_service.config import DrafterConfig
from drafter_service.server import serve
from foredraft.errors import ForedraftError
from foredraft.strict import parse

GRACE_S = 10.0


async def run(config: DrafterConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain and stop."""
    server = await serve(config)
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    await asked.wait()
    await server.drain(GRACE_S)
    await server.stop()


def main() -> int:
    """Return the exit status: 2 where the configuration or the weights cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m drafter_service", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file, see config.py")
    path = parser.parse_args().config
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        asyncio.run(run(parse(DrafterConfig, yaml.safe_load(path.read_text()))))
    except (ForedraftError, OSError, yaml.YAMLError) as error:
        print(f"drafter: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
