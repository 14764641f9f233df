"""Trains the block-diffusion target, by one process or several, with checkpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tqdm import tqdm

from foredraft_align.loop.checkpoints import Checkpoints, restore, store
from foredraft_align.loop.clock import advance
from foredraft_align.loop.log import StepLog
from foredraft_align.loop.memory import keep_freed_memory
from foredraft_align.loop.precision import fast_products
from foredraft_align.loop.schedule import WSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained
from training.block_dlm.model import BlockDLM, export
from training.block_dlm.noising import Noised, Texts, noise
from training.corpus.tokenizer import MASK_ID
from training.embedded.start import started
from training.embedded.target import held_out_rows


@dataclass(frozen=True)
class BlockDlmRun:
    """Settings of one training; it ends after `minutes` over all its parts, or after `steps` if
    there are some. A part ends after `part_minutes` and is gone on with by the same command.
    """

    data: Path
    start: Path
    output: Path
    checkpoint: Path
    layers: int = 8
    block_length: int = 8
    length: int = 256
    minutes: float = 180.0
    steps: int = 0
    part_minutes: float = float("inf")
    lr: float = 2e-3
    weight_decay: float = 0.1
    decay: float = 0.5
    batch: int = 16
    micro_batch: int = 4
    device: str = "cpu"
    core_share: float = 0.5
    continued_share: float = 0.3
    seed: int = 0
    checkpoint_steps: int = 50
    evaluate_steps: int = 200

    def done(self, step: int, elapsed: float) -> float:
        """Share of the training that is done, in [0, 1]."""
        return min(1.0, step / self.steps if self.steps else elapsed / (60 * self.minutes))


def train(run: BlockDlmRun, rank: int = 0, world: int = 1) -> None:
    """Trains to the run's or the part's end, from the latest checkpoint on; rank 0 exports.

    Steps draw the same texts and noise and, with run.steps, have the same learning rates whatever
    was interrupted, so that a run that goes on ends with the weights of one that was not.
    """
    keep_freed_memory()
    if world > 1:
        torch.set_num_threads(1)
    model = BlockDLM(started(run.start, run.layers), run.length, run.block_length).to(run.device)
    embedding = model.network.embedding.weight
    trained = [
        Trained(each, muon=each.ndim == 2 and each is not embedding) for each in model.parameters()
    ]
    optimizer = ShardedOptimizer(trained, run.lr, run.weight_decay, distributed=world > 1)
    checkpoints = Checkpoints(run.checkpoint, rank, world)
    step, elapsed = restore(checkpoints, model, optimizer)
    texts, schedule = Texts(run.data, run.length, run.seed), WSD(run.lr, decay=run.decay)
    log = StepLog(run.checkpoint / "log.jsonl", step) if rank == 0 else None
    bar = tqdm(unit="step", initial=step, disable=rank != 0, mininterval=5)
    previous, part_end, saved = time.monotonic(), elapsed + 60 * run.part_minutes, step
    while (done := run.done(step, elapsed)) < 1 and elapsed < part_end:
        rows = texts.draw(run.batch, run.core_share, run.continued_share, step)
        noised = noise(rows, run.block_length, np.random.default_rng([run.seed, 13, step]))
        mine = noised.rows(slice(rank, None, world)).to(run.device)
        loss, right = _accumulate(model, mine, run.micro_batch)
        optimizer.step(schedule.rate(done))
        step += 1
        elapsed, previous = advance(elapsed, previous, distributed=world > 1)
        if log is not None:
            figures = {"step": step, "elapsed": round(elapsed, 1), "loss": loss, "right": right}
            if step % run.evaluate_steps == 0 or run.done(step, elapsed) == 1:
                figures |= held_out(model, run)
            log.add(figures)
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}", right=f"{right:.3f}")
        if step % run.checkpoint_steps == 0:
            store(checkpoints, step, elapsed, model, optimizer)
            saved = step
    if saved != step:
        store(checkpoints, step, elapsed, model, optimizer)
    if rank == 0:
        export(model.network, run.output, run.block_length, MASK_ID)


def _accumulate(model: BlockDLM, batch: Noised, micro_batch: int) -> tuple[float, float]:
    """Adds the gradients of the batch's mean loss; returns that and the share of right tokens."""
    figures = torch.zeros(2, device=batch.clean.device)
    for part in batch.split(micro_batch):
        share = len(part.clean) / len(batch.clean)
        with fast_products(batch.clean.device.type):
            loss, right = model(part)
        (loss * share).backward()
        figures += torch.stack((loss.detach(), right)) * share
    return float(figures[0]), float(figures[1])


@torch.no_grad()
def held_out(model: BlockDLM, run: BlockDlmRun, rows: int = 48) -> dict[str, float]:
    """Loss and share of right tokens on held-out texts, always with the same noise."""
    tokens = held_out_rows(run.data, run.length, rows)[:, :-1]
    batch = noise(tokens, run.block_length, np.random.default_rng(0)).to(run.device)
    figures = torch.zeros(2, device=run.device)
    for part in batch.split(run.micro_batch):
        with fast_products(batch.clean.device.type):
            figures += torch.stack(model(part)) * len(part.clean) / rows
    return {"held_out_loss": float(figures[0]), "held_out_right": float(figures[1])}


def run_rank(rank: int, world: int, run: BlockDlmRun, store_file: str) -> None:
    """Entry point of one rank; `store_file` is a file that the ranks meet at."""
    dist.init_process_group("gloo", init_method=f"file://{store_file}", rank=rank, world_size=world)
    try:
        train(run, rank, world)
    finally:
        dist.destroy_process_group()
