"""The ranks after rank 0 of a tensor-parallel verifier: started, watched, ended.

This module is what such a rank runs: python -m verifier_service.parallel.ranks CONFIG RANK ADDRESS.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

from foredraft.errors import Unavailable
from foredraft.strict import parse
from verifier_service.config import VerifierConfig


class Ranks(Protocol):
    """Processes that follow rank 0."""

    def check(self) -> None:
        """Raise Unavailable if one of them has ended."""

    def stop(self) -> None:
        """End them; a second call does nothing."""


class NoRanks:
    """A verifier of one rank."""

    def check(self) -> None:
        """Nothing can be lost."""

    def stop(self) -> None:
        """Nothing to end."""


class ProcessRanks:
    """Ranks as child processes on this machine; they end when rank 0 does."""

    def __init__(self, config: VerifierConfig, address: str) -> None:
        command = [
            sys.executable,
            "-m",
            "verifier_service.parallel.ranks",
            config.model_dump_json(),
        ]
        self._processes = [
            subprocess.Popen([*command, str(rank), address])  # noqa: S603 - our own program
            for rank in range(1, config.tensor_parallel)
        ]

    def check(self) -> None:
        """Raise Unavailable if one of them has ended."""
        if any(process.poll() is not None for process in self._processes):
            raise Unavailable("a rank of the verifier has ended")

    def stop(self) -> None:
        """End them; a second call does nothing."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


# Starts the ranks after rank 0 of a configuration; they meet at the address.
StartRanks = Callable[[VerifierConfig, str], Ranks]


def run_rank(config: VerifierConfig, rank: int, address: str) -> None:
    """Run as a rank after rank 0 until that one is gone."""
    # Imported here: starting ranks elsewhere needs no torch.
    from verifier_service.load import load_target, prepare_threads
    from verifier_service.parallel import tensor_parallel

    prepare_threads(config)
    place = tensor_parallel.Place(rank, config.tensor_parallel, address)
    tensor_parallel.join_as_follower(place, config.device)
    tensor_parallel.follow(load_target(config))


def main() -> None:
    """Run a rank."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    config, rank, address = sys.argv[1:]
    run_rank(parse(VerifierConfig, json.loads(config)), int(rank), address)


if __name__ == "__main__":
    main()
