"""Who does the work: Ray tasks that write texts, and Ray Train's workers that train."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from foredraft.errors import ConfigError, ForedraftError
from foredraft_align.data.write import WritePlan, write_shards
from foredraft_align.drafter.student import Student
from foredraft_align.loop.train import Progress, TrainPlan, train
from foredraft_align.progress import LogWatch

Make = Callable[[], Student]


class Workers(Protocol):
    """Places the work of a run."""

    def write(self, plan: WritePlan) -> None:
        """Have all shards written; those that are there stay."""

    def train(self, plan: TrainPlan, make: Make, report: Callable[[Progress], None]) -> None:
        """Train to the plan's end; report gets rank 0's progress, while it is made or later."""


class RayWorkers:
    """`count` workers on the Ray cluster of RAY_ADDRESS, or on one of this machine."""

    def __init__(self, count: int, device: str, say: Callable[[str], None]) -> None:
        """Raise ConfigError where Ray Train is not installed."""
        try:
            import ray.train.torch
        except ImportError:
            raise ConfigError("training needs Ray Train: pip install 'foredraft[align]'") from None
        self._count, self._gpu, self._say = count, device != "cpu", say
        if not ray.is_initialized():
            ray.init(
                address=os.environ.get("RAY_ADDRESS"),
                log_to_driver=False,
                include_dashboard=False,
                configure_logging=False,
            )

    def write(self, plan: WritePlan) -> None:
        """Give each worker shards until all are there."""
        import ray

        missing = [shard for shard in range(plan.shards) if not plan.path(shard).is_file()]
        if not missing:
            return
        options: dict[str, Any] = {"num_gpus": 1} if self._gpu else {"num_cpus": 1}
        task = ray.remote(**options, max_retries=3)(write_shards)
        lots = [missing[rank :: self._count] for rank in range(self._count)]
        waiting = [task.remote(plan, lot) for lot in lots if lot]
        while waiting:
            done, waiting = ray.wait(waiting, timeout=10)
            ray.get(done)
            there = sum(plan.path(shard).is_file() for shard in range(plan.shards))
            self._say(f"{there} of {plan.shards} files of texts")

    def train(self, plan: TrainPlan, make: Make, report: Callable[[Progress], None]) -> None:
        """Run train in Ray Train's workers; those that are lost begin again at a checkpoint.

        Raise ForedraftError with the last line of what a worker raised.
        """
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchConfig, TorchTrainer

        plan.output.mkdir(parents=True, exist_ok=True)
        watch = LogWatch(plan.output / "run" / "log.jsonl", report)
        trainer = TorchTrainer(
            _train_worker,
            train_loop_config={"plan": plan, "make": make},
            scaling_config=ScalingConfig(
                num_workers=self._count,
                resources_per_worker={"CPU": 1},
            ),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(
                storage_path=str((plan.output / "run" / "ray").resolve()),
                failure_config=FailureConfig(max_failures=3),
            ),
        )
        try:
            with watch:
                trainer.fit()
        except TrainingFailedError as error:
            whole = plan.output / "run" / "error.txt"
            whole.write_text(str(error))
            last = str(error).strip().splitlines()[-1].strip()
            raise ForedraftError(f"training failed: {last} (all of it: {whole})") from None


def _train_worker(config: dict[str, Any]) -> None:
    import torch
    from ray.train import get_context

    context = get_context()
    world = context.get_world_size()
    # Ray gives a process as many threads as it reserves CPUs.
    torch.set_num_threads(1 if world > 1 else len(os.sched_getaffinity(0)))
    train(config["plan"], config["make"], context.get_world_rank(), world, lambda _: None)
