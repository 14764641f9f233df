"""Trains the target on the encoded corpus, by one process or by several ranks, with checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from tqdm import tqdm

from foredraft_align.loop.clock import advance
from foredraft_align.loop.schedule import TimedWSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained
from training.corpus.encoded import encoded
from training.embedded.ranks import load_rank, save_rank
from training.embedded.target_model import (
    TargetModel,
    TargetShape,
    export_target,
    grown,
    load_target,
)


@dataclass(frozen=True)
class TargetRun:
    """Settings of one target training run; `minutes` counts training time over all resumptions.

    `start` is an exported target to go on from, with a new schedule, grown to the shape's layers;
    None starts from scratch.
    """

    data: Path
    output: Path
    checkpoint: Path
    shape: TargetShape
    minutes: float = 64.0
    lr: float = 3e-3
    weight_decay: float = 0.1
    batch: int = 8
    length: int = 512
    micro_batch: int = 4
    seed: int = 0
    core_share: float = 0.4
    core_share_in_decay: float = 0.6
    compile: bool = True
    checkpoint_steps: int = 60
    start: Path | None = None


class Batches:
    """Rows of length+1 tokens, drawn from the core stream or the rest without repetition within an
    epoch.
    """

    def __init__(self, data: Path, length: int, seed: int) -> None:
        self.streams = []
        for index, name in enumerate(("core", "rest")):
            tokens = encoded(data, name)
            rows = (tokens.size - 1) // length
            self.streams.append((tokens, np.random.default_rng([seed, index]).permutation(rows)))
        self.length = length
        self.used = [0, 0]

    def rows(self, count: int, core_share: float, step: int, seed: int) -> Tensor:
        """int64 [count, length + 1]; which stream a row is from depends on (seed, step) alone."""
        choice = np.random.default_rng([seed, 7, step]).random(count) >= core_share
        out = np.empty((count, self.length + 1), dtype=np.int64)
        for row, stream in enumerate(choice.astype(int)):
            tokens, order = self.streams[stream]
            start = int(order[self.used[stream] % order.size]) * self.length
            out[row] = tokens[start : start + self.length + 1]
            self.used[stream] += 1
        return torch.from_numpy(out)


def held_out_rows(data: Path, length: int, rows: int = 48) -> Tensor:
    """Evenly spread rows of the held-out stream, int64 [rows, length + 1]."""
    tokens = encoded(data, "heldout")
    starts = np.linspace(0, tokens.size - length - 2, rows).astype(int)
    return torch.from_numpy(np.stack([tokens[s : s + length + 1] for s in starts]).astype(np.int64))


@torch.inference_mode()
def held_out_loss(model: TargetModel, rows: Tensor) -> float:
    """Mean held-out cross-entropy in nats per token, under bf16 autocast."""
    losses = []
    for part in rows.split(4):
        with torch.autocast("cpu", torch.bfloat16):
            losses.append(float(model(part[:, :-1], part[:, 1:])) * len(part))
    return sum(losses) / len(rows)


def train_target(run: TargetRun, rank: int = 0, world: int = 1) -> None:
    """Trains until the time budget is used; resumes from the checkpoint; rank 0 exports at each
    checkpoint.
    """
    if world > 1:
        torch.set_num_threads(1)
    model = (
        grown(load_target(run.start), run.shape.layers)
        if run.start
        else TargetModel(run.shape, run.seed)
    )
    trained = [
        Trained(p, muon=p.ndim == 2 and p is not model.embedding.weight) for p in model.parameters()
    ]
    optimizer = ShardedOptimizer(trained, run.lr, run.weight_decay, distributed=world > 1)
    schedule = TimedWSD(run.lr, run.minutes * 60)
    batches = Batches(run.data, run.length, run.seed)
    step, elapsed, batches.used = load_rank(run.checkpoint, rank, model, optimizer, batches.used)
    loss_of = torch.compile(model) if run.compile else model
    _warm_up(loss_of, optimizer, run)
    log = (run.checkpoint / "log.jsonl").open("a") if rank == 0 else None
    bar = tqdm(
        total=round(run.minutes * 60),
        initial=round(elapsed),
        unit="s",
        disable=rank != 0,
        mininterval=5,
    )
    previous = time.monotonic()
    while schedule.progress(elapsed) < 1:
        share = run.core_share_in_decay if schedule.decaying(elapsed) else run.core_share
        rows = batches.rows(run.batch, share, step, run.seed)[rank::world]
        loss = _accumulate(loss_of, rows, run.micro_batch)
        optimizer.step(schedule.rate(elapsed))
        step += 1
        elapsed, previous = advance(elapsed, previous, distributed=world > 1)
        bar.n = round(elapsed)
        bar.set_postfix(
            step=step, loss=f"{loss:.3f}", tokens=f"{step * run.batch * run.length / 1e6:.2f}M"
        )
        if log is not None:
            log.write(
                json.dumps({"step": step, "elapsed": round(elapsed, 1), "loss": round(loss, 4)})
                + "\n"
            )
            log.flush()
        if step % run.checkpoint_steps == 0:
            _save(run, model, optimizer, batches, rank, step, elapsed)
    _save(run, model, optimizer, batches, rank, step, elapsed)
    if log is not None:
        final = held_out_loss(model, held_out_rows(run.data, run.length))
        log.write(
            json.dumps({"step": step, "elapsed": round(elapsed, 1), "held_out": round(final, 4)})
            + "\n"
        )
        log.close()
        export_target(model, run.output)


LossOf = Callable[[Tensor, Tensor], Tensor]
"""(tokens, labels) -> mean loss"""


def _accumulate(loss_of: LossOf, rows: Tensor, micro_batch: int) -> float:
    """Adds the gradients of the rows' mean loss; returns that loss in nats."""
    total = 0.0
    for part in rows.split(micro_batch):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(part[:, :-1].contiguous(), part[:, 1:].contiguous()) * (
                len(part) / len(rows)
            )
        loss.backward()
        total += float(loss.detach())
    return total


def _warm_up(loss_of: LossOf, optimizer: ShardedOptimizer, run: TargetRun) -> None:
    """Compiles before the clock starts: one micro-batch whose gradients are thrown away."""
    _accumulate(
        loss_of, torch.zeros(run.micro_batch, run.length + 1, dtype=torch.int64), run.micro_batch
    )
    optimizer.clear()
    if optimizer.distributed:
        dist.barrier()


def _save(
    run: TargetRun,
    model: TargetModel,
    optimizer: ShardedOptimizer,
    batches: Batches,
    rank: int,
    step: int,
    elapsed: float,
) -> None:
    """Writes the checkpoint and, on rank 0, an export that can be used at once."""
    save_rank(run.checkpoint, rank, model, optimizer, step, elapsed, batches.used)
    if rank == 0:
        export_target(model, run.checkpoint / "export")


def run_rank(rank: int, world: int, run: TargetRun, store: str) -> None:
    """Entry point of one rank; `store` is a file that the ranks meet at."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        train_target(run, rank, world)
    finally:
        dist.destroy_process_group()
