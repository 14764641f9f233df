"""Trains a drafter in one of several processes; each has a part of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foredraft_align.data.store import Store
from foredraft_align.drafter.student import Student
from foredraft_align.evaluate import tokens_per_round
from foredraft_align.loop.batches import Batches, parts
from foredraft_align.loop.checkpoints import Checkpoints, restore, store
from foredraft_align.loop.clock import advance
from foredraft_align.loop.log import StepLog
from foredraft_align.loop.memory import keep_freed_memory
from foredraft_align.loop.objectives import Decaying, Objective, loss_of
from foredraft_align.loop.precision import fast_products
from foredraft_align.loop.schedule import WSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """Settings of one training; it ends after `seconds`, or after `steps` if there are some."""

    output: Path
    texts: Path
    train: tuple[int, ...]
    held_out: tuple[int, ...]
    seconds: float = 3600.0
    steps: int = 0
    lr: float = 1e-2
    batch: int = 8
    """texts in a step, of all processes"""
    micro_batch: int = 2
    rows: int = 480
    """mask slots of each text"""
    block_sizes: tuple[int, ...] = (4, 8, 12)
    block_shares: tuple[float, ...] = (0.25, 0.5, 0.25)
    objective: Objective = field(default_factory=Decaying)
    decay: float = 0.5
    seed: int = 0
    checkpoint_steps: int = 50
    evaluate_steps: int = 400


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training stands; figures are the latest known."""

    step: int
    elapsed: float
    done: float
    loss: float
    first: float
    """share of first slots whose best token, after the real one before it, is the text's"""
    held_out: float | None
    """accepted tokens per round on texts that were not trained on, without the bonus"""


def train(
    plan: TrainPlan,
    make: Callable[[], Student],
    rank: int,
    world: int,
    report: Callable[[Progress], None],
) -> None:
    """Train until the plan's end, from the latest checkpoint on; rank 0 writes the drafter.

    Steps draw the same batches and, with plan.steps, have the same learning rates whatever was
    interrupted, so that a run that goes on ends with the weights of one that was not.
    """
    keep_freed_memory()
    torch.manual_seed(plan.seed)
    student = make()
    trained = [
        Trained(parameter, muon=parameter.ndim == 2 and name.startswith(("layers.", "fc.")))
        for name, parameter in student.named_parameters()
        if parameter.requires_grad
    ]
    optimizer = ShardedOptimizer(trained, plan.lr, weight_decay=0.05, distributed=world > 1)
    checkpoints = Checkpoints(plan.output / "run", rank, world)
    step, elapsed = restore(checkpoints, student, optimizer)
    saved = step
    texts = Store(plan.texts)
    batches = Batches(texts, plan.train, plan.batch, plan.rows, plan.seed)
    schedule = WSD(plan.lr, decay=plan.decay)
    held_out = [texts.text(index) for index in plan.held_out]
    log = StepLog(plan.output / "run" / "log.jsonl", step) if rank == 0 else None
    previous = time.monotonic()
    done = _share_done(plan, step, elapsed)
    while done < 1:
        lr = schedule.rate(done)
        figures = _step(plan, student, optimizer, batches, step, rank, world, done, lr)
        step += 1
        elapsed, previous = advance(elapsed, previous, distributed=world > 1)
        done = _share_done(plan, step, elapsed)
        mat = None
        if rank == 0 and held_out and (step % plan.evaluate_steps == 0 or done == 1):
            mat = tokens_per_round(student, held_out, plan.block_sizes[-1]).mat
        if log is not None:
            progress = Progress(step, elapsed, done, float(figures[0]), float(figures[1]), mat)
            log.add(asdict(progress))
            report(progress)
        if step % plan.checkpoint_steps == 0:
            store(checkpoints, step, elapsed, student, optimizer)
            saved = step
    if saved != step:
        store(checkpoints, step, elapsed, student, optimizer)
    if rank == 0:
        student.save(plan.output)


def _share_done(plan: TrainPlan, step: int, elapsed: float) -> float:
    """Return the share of the training that is done, in [0, 1]."""
    return min(1.0, step / plan.steps if plan.steps else elapsed / plan.seconds)


def _step(
    plan: TrainPlan,
    student: Student,
    optimizer: ShardedOptimizer,
    batches: Batches,
    step: int,
    rank: int,
    world: int,
    done: float,
    lr: float,
) -> Tensor:
    """Take one step; return this rank's mean loss and share of right first slots."""
    random = np.random.default_rng([plan.seed, 7, step])
    slots = int(random.choice(plan.block_sizes, p=plan.block_shares))
    batch = batches.draw(step, rank, world, slots)
    figures = torch.zeros(2)
    drawn = np.random.default_rng([plan.seed, 9, step, rank])
    for part in parts(batch, plan.micro_batch):
        share = len(part.tokens) / len(batch.tokens)
        noise = plan.objective.noise(tuple(part.labels.shape), done, drawn)
        with fast_products():
            hidden = student.hidden_of_slots(part, noise.filled)
            loss, right = loss_of(student, part, noise, hidden, plan.objective)
        (loss * share).backward()
        figures += torch.stack((loss.detach(), right)) * share
    optimizer.step(lr)
    return figures
