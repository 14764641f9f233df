"""The ranks of a tensor-parallel verifier as actors in the replica's own placement group."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from foredraft.errors import Unavailable


class Rank:
    """One rank behind rank 0; it lives and dies with the replica that made it."""

    def run(self, config: Any, rank: int, address: str) -> None:
        """Follow rank 0 until that one is gone."""
        # Imported here: only the actor's process needs torch.
        from verifier_service.parallel.ranks import run_rank

        run_rank(config, rank, address)


class RayRanks:
    """Ranks in the bundles behind the replica's; verifier_service.parallel.ranks.Ranks."""

    def __init__(self, config: Any, address: str) -> None:
        group: Any = ray.util.get_current_placement_group()
        self._actors = []
        for rank in range(1, config.tensor_parallel):
            bundle = group.bundle_specs[rank]
            made: Any = ray.remote(Rank)
            self._actors.append(
                made.options(
                    num_cpus=bundle.get("CPU", 0),
                    num_gpus=bundle.get("GPU", 0),
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        group, placement_group_bundle_index=rank
                    ),
                ).remote()
            )
        self._runs = [
            actor.run.remote(config, rank, address)
            for rank, actor in enumerate(self._actors, start=1)
        ]

    def check(self) -> None:
        """Raise Unavailable if one of them has ended."""
        ended, _ = ray.wait(self._runs, num_returns=1, timeout=0)
        if ended:
            raise Unavailable("a rank of the verifier has ended")

    def stop(self) -> None:
        """End them; a second call does nothing."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
