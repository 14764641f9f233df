"""Trains an any-subset model on the encoded corpus, by one process or by several ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tqdm import tqdm

from foredraft_align.loop.clock import advance
from foredraft_align.loop.log import StepLog
from foredraft_align.loop.memory import keep_freed_memory
from foredraft_align.loop.precision import fast_products
from foredraft_align.loop.schedule import WSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained
from training.any_subset.evaluate import held_out_nats
from training.any_subset.layouts import (
    LAST_RATES,
    InfillBatch,
    MaskRates,
    Order,
    mask_rates,
    with_layouts,
)
from training.any_subset.model import (
    AnySubsetModel,
    export_any_subset,
    load_any_subset,
    with_length,
)
from training.embedded.ranks import load_rank, save_rank
from training.embedded.start import started
from training.embedded.target import Batches, held_out_rows
from training.embedded.target_model import TargetModel, TargetShape


@dataclass(frozen=True)
class AnySubsetRun:
    """Settings of one run; it ends after `minutes` in all, or after `steps` if there are some.

    `start` is a target whose first-trained layers it begins with, or an any-subset model to go on
    from; None starts from scratch. `warmup` is the share of the time in which masking rates rise,
    `holes` the share of the texts that have holes in place of scattered masked tokens.
    """

    data: Path
    output: Path
    checkpoint: Path
    shape: TargetShape
    start: Path | None
    minutes: float = 180.0
    steps: int = 0
    lr: float = 2e-3
    weight_decay: float = 0.1
    batch: int = 16
    length: int = 256
    micro_batch: int = 4
    device: str = "cpu"
    seed: int = 0
    order: Order = Order.LATTICE
    rates: MaskRates = LAST_RATES
    warmup: float = 1 / 15
    holes: float = 0.5
    core_share: float = 0.4
    checkpoint_steps: int = 30

    def done(self, step: int, elapsed: float) -> float:
        """Share of the training that is done, in [0, 1]."""
        return min(1.0, step / self.steps if self.steps else elapsed / (60 * self.minutes))


def new_model(run: AnySubsetRun) -> AnySubsetModel:
    """The model that a run's first step changes."""
    if run.start is None:
        return AnySubsetModel(TargetModel(run.shape, run.seed))
    config = json.loads((run.start / "config.json").read_text())
    if "any_subset" in config:
        return load_any_subset(run.start, run.length)
    return AnySubsetModel(with_length(started(run.start, run.shape.layers), run.length))


class InfillBatches:
    """Steps' batches: texts without repetition within an epoch, layouts a function of seed and
    step.
    """

    def __init__(self, run: AnySubsetRun) -> None:
        self.texts = Batches(run.data, run.length, run.seed)
        self.run = run

    def draw(self, step: int, progress: float) -> InfillBatch:
        """The batch of all ranks when the share `progress` of the training is done."""
        run = self.run
        rows = self.texts.rows(run.batch, run.core_share, step, run.seed)[:, : run.length]
        random = np.random.default_rng([run.seed, 17, step])
        rates = mask_rates(run.rates, progress, run.warmup)
        return with_layouts(rows.to(run.device), random, rates, run.order, run.holes)


def train_any_subset(
    run: AnySubsetRun,
    rank: int = 0,
    world: int = 1,
    clock: Callable[..., tuple[float, float]] = advance,
) -> None:
    """Trains until the time budget is used; resumes from the checkpoint; rank 0 exports the model
    at each checkpoint. `clock` is `advance` or stands in for it.
    """
    keep_freed_memory()
    if world > 1:
        torch.set_num_threads(1)
    model = new_model(run).to(run.device)
    embedding = model.network.embedding.weight
    trained = [Trained(p, muon=p.ndim == 2 and p is not embedding) for p in model.parameters()]
    optimizer = ShardedOptimizer(trained, run.lr, run.weight_decay, distributed=world > 1)
    schedule = WSD(run.lr)
    batches = InfillBatches(run)
    used = batches.texts.used
    step, elapsed, batches.texts.used = load_rank(run.checkpoint, rank, model, optimizer, used)
    log = StepLog(run.checkpoint / "log.jsonl", step) if rank == 0 else None

    def save() -> None:
        save_rank(run.checkpoint, rank, model, optimizer, step, elapsed, batches.texts.used)
        if rank == 0:
            export_any_subset(model, run.checkpoint / "export")

    bar = tqdm(
        unit="step",
        initial=step,
        disable=rank != 0,
        mininterval=5,
    )
    previous = time.monotonic()
    while (done := run.done(step, elapsed)) < 1:
        batch = batches.draw(step, done).part(slice(rank, None, world))
        nats = accumulate(model, batch, run.micro_batch)
        optimizer.step(schedule.rate(done))
        step += 1
        elapsed, previous = clock(elapsed, previous, distributed=world > 1)
        bar.update()
        bar.set_postfix(nats=f"{nats:.3f}")
        if log is not None:
            masked = batch.masked / batch.tokens.numel()
            log.add({"step": step, "elapsed": elapsed, "nats": nats, "masked": masked})
        if step % run.checkpoint_steps == 0:
            save()
    save()
    if log is not None:
        texts = held_out_rows(run.data, run.length)[:, : run.length]
        figures = held_out_nats(model, texts.to(run.device))
        log.add({"step": step, "elapsed": elapsed, **figures})
        export_any_subset(model, run.output)


def accumulate(model: AnySubsetModel, batch: InfillBatch, micro_batch: int) -> float:
    """Adds the gradients of the mean over the batch's masked tokens; returns it in nats (Eq. 7)."""
    total = 0.0
    for part in batch.split(micro_batch):
        with fast_products(part.tokens.device.type):
            loss = model(part.tokens, part.order, part.given) / batch.masked
        loss.backward()
        total += float(loss.detach())
    return total


def run_any_subset_rank(rank: int, world: int, run: AnySubsetRun, store: str) -> None:
    """Entry point of one rank; `store` is a file that the ranks meet at."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        train_any_subset(run, rank, world)
    finally:
        dist.destroy_process_group()
