"""What chance decides in a cluster, each part by a source of its own: none moves another."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Chance(NamedTuple):
    """Delays on both links, the replicas that Serve picks in both pools, when replicas report."""

    to_drafters: Random
    to_verifiers: Random
    drafters: Random
    verifiers: Random
    reports: Random

    @classmethod
    def of(cls, seed: int) -> Chance:
        """Return that of a seed."""
        random = Random(seed)
        return cls(*(Random(random.random()) for _ in cls._fields))
