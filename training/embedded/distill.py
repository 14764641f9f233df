"""Trains the drafter on the target's own continuations.

Each sequence is [clean tokens, causal | packed mask blocks]. The loss has two parts: base logits
alone, and base plus edge logits given the real previous token. Both mix soft targets (the target's
stored top candidates) with the real token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm import tqdm

from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from foredraft_align.loop.clock import advance
from foredraft_align.loop.schedule import TimedWSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained
from training.corpus.distill_data import BlockBatch, Shards
from training.embedded.ranks import load_rank, save_rank
from training.embedded.target_model import (
    NEVER,
    TargetModel,
    causal_attention,
    load_target,
    masked_attention,
)


@dataclass(frozen=True)
class DistillRun:
    """Settings of one distillation.

    The drafter starts from the target's `source_layers`, or goes on from the drafter in `start`,
    with layers added at its end that change nothing yet if there are fewer than `layers`.
    """

    shards: Path
    target: Path
    output: Path
    checkpoint: Path
    minutes: float = 33.0
    lr: float = 2e-3
    batch: int = 16
    micro_batch: int = 4
    mask_rows: int = 256
    gamma: float = 0.75
    soft_share: float = 0.5
    base_share: float = 0.35
    source_layers: tuple[int, ...] = (0, 1)
    start: Path | None = None
    layers: int = 2
    edge_rank: int = 96
    seed: int = 0
    compile: bool = True
    checkpoint_steps: int = 100


def drafter_from_target(
    target: TargetModel, source_layers: tuple[int, ...], edge_rank: int, seed: int
) -> BlockCausalDLM:
    """A drafter with the target's embedding, final norm and layers; edges start at zero."""
    shape = target.shape
    config = BlockCausalConfig(
        shape.vocab,
        shape.hidden,
        shape.heads,
        shape.intermediate,
        num_layers=len(source_layers),
        edge_rank=edge_rank,
        rope_theta=shape.rope_theta,
        rms_eps=shape.rms_eps,
        max_position_embeddings=shape.max_positions,
    )
    model = BlockCausalDLM(config)
    model.embedding.load_state_dict(target.embedding.state_dict())
    model.norm.load_state_dict(target.norm.state_dict())
    for layer, source in zip(model.layers, source_layers, strict=True):
        layer.load_state_dict(target.layers[source].state_dict())
    generator = torch.Generator().manual_seed(seed)
    scale = float(target.embedding.weight.detach().std())
    nn.init.normal_(model.mask_slots, std=scale, generator=generator)
    nn.init.normal_(model.edge_previous.weight, std=0.3, generator=generator)
    nn.init.zeros_(model.edge_next.weight)
    nn.init.normal_(model.edge_gate.weight, std=0.02, generator=generator)
    nn.init.ones_(model.edge_gate.bias)
    return model


def drafter_from_drafter(start: Path, layers: int, target: TargetModel) -> BlockCausalDLM:
    """The drafter in a folder, in fp32, with the target's embedding and, up to `layers`, identity
    layers added.
    """
    old = BlockCausalDLM.load(start, torch.float32)
    model = BlockCausalDLM(replace(old.config, num_layers=max(layers, old.config.num_layers)))
    model.load_state_dict(old.state_dict(), strict=False)
    model.embedding.load_state_dict(target.embedding.state_dict())
    last = old.layers[-1].state_dict()
    for layer in model.layers[old.config.num_layers :]:
        layer.load_state_dict(last)
        nn.init.zeros_(layer.out.weight)
        nn.init.zeros_(layer.down.weight)
    return model


class DistillLoss(nn.Module):
    """The drafter with its training loss, as one graph."""

    def __init__(self, model: BlockCausalDLM, run: DistillRun) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, batch: BlockBatch) -> tuple[Tensor, Tensor]:
        """Loss to minimise, and the plain cross-entropy of (base, base + edge) in nats, both
        weighted by slot.
        """
        b, m = batch.label.shape
        rows = batch.tokens.shape[1]
        n = rows - m
        hidden = torch.where(batch.visible, 0.0, NEVER)

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.view(b, rows, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
            clean = causal_attention(q[:, :, :n], k[:, :, :n], v[:, :, :n])
            masks = masked_attention(q[:, :, n:], k, v, hidden)
            return torch.cat((clean, masks), dim=2).transpose(1, 2).flatten(0, 1)

        hidden = self.model.forward_rows(
            batch.tokens.flatten(),
            batch.positions.flatten(),
            batch.slots.flatten(),
            attend,
        )
        hidden = hidden.view(b, rows, -1)[:, n:].reshape(b * m, -1)
        base = self.model.base_logits(hidden)
        edge = base + self.model.edge_logits(hidden, batch.previous.flatten())
        base_soft, base_hard = self._losses(base, batch)
        edge_soft, edge_hard = self._losses(edge, batch)
        soft = self.run.base_share * base_soft + (1 - self.run.base_share) * edge_soft
        hard = self.run.base_share * base_hard + (1 - self.run.base_share) * edge_hard
        loss = self.run.soft_share * soft + (1 - self.run.soft_share) * hard
        return loss, torch.stack((base_hard, edge_hard)).detach()

    def _losses(self, logits: Tensor, batch: BlockBatch) -> tuple[Tensor, Tensor]:
        """Soft and hard cross-entropy, averaged with the slot weights."""
        log_probs = logits.float().log_softmax(-1)
        weight = batch.weight.flatten() / batch.weight.sum()
        soft = -(
            log_probs.gather(1, batch.top_ids.flatten(0, 1)) * batch.top_probs.flatten(0, 1)
        ).sum(-1)
        hard = -log_probs.gather(1, batch.label.flatten()[:, None]).squeeze(1)
        return (soft * weight).sum(), (hard * weight).sum()


def train_drafter(run: DistillRun, rank: int = 0, world: int = 1) -> None:
    """Distils until the time budget is used; resumes from the checkpoint; rank 0 writes the drafter
    folder.
    """
    if world > 1:
        torch.set_num_threads(1)
    target = load_target(run.target)
    model = (
        drafter_from_drafter(run.start, run.layers, target)
        if run.start
        else drafter_from_target(target, run.source_layers, run.edge_rank, run.seed)
    )
    trained = [
        Trained(parameter, muon=name.startswith("layers.") and parameter.ndim == 2)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    optimizer = ShardedOptimizer(trained, run.lr, weight_decay=0.05, distributed=world > 1)
    schedule = TimedWSD(run.lr, run.minutes * 60, decay=0.5)
    shards = Shards(run.shards, run.seed)
    step, elapsed, shards.used = load_rank(run.checkpoint, rank, model, optimizer, shards.used)
    loss_of = (
        torch.compile(DistillLoss(model, run), dynamic=False)
        if run.compile
        else DistillLoss(model, run)
    )
    _warm_up(loss_of, optimizer, shards, run)
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
        batch = shards.draw(run.batch, step, rank, world, run.mask_rows, run.gamma)
        seen = _accumulate(loss_of, batch.split(run.micro_batch))
        optimizer.step(schedule.rate(elapsed))
        step += 1
        elapsed, previous = advance(elapsed, previous, distributed=world > 1)
        bar.n = round(elapsed)
        bar.set_postfix(step=step, base=f"{seen[0]:.3f}", edge=f"{seen[1]:.3f}")
        if log is not None:
            entry = {
                "step": step,
                "elapsed": round(elapsed, 1),
                "base": float(seen[0]),
                "edge": float(seen[1]),
            }
            log.write(json.dumps(entry) + "\n")
            log.flush()
        if step % run.checkpoint_steps == 0:
            save_rank(run.checkpoint, rank, model, optimizer, step, elapsed, shards.used)
            if rank == 0:
                model.save(run.checkpoint / "export")
    save_rank(run.checkpoint, rank, model, optimizer, step, elapsed, shards.used)
    if log is not None:
        log.close()
        model.save(run.output)


LossOf = Callable[[BlockBatch], tuple[Tensor, Tensor]]


def _accumulate(loss_of: LossOf, parts: list[BlockBatch]) -> Tensor:
    """Adds the gradients of the parts' mean loss; returns the mean figures of `DistillLoss`."""
    seen = torch.zeros(2)
    for part in parts:
        with torch.autocast("cpu", torch.bfloat16):
            loss, figures = loss_of(part)
        (loss / len(parts)).backward()
        seen += figures / len(parts)
    return seen


def _warm_up(loss_of: LossOf, optimizer: ShardedOptimizer, shards: Shards, run: DistillRun) -> None:
    """Compiles the graph of every sequence length before the clock starts."""
    for batch in shards.samples(run.micro_batch, run.mask_rows):
        _accumulate(loss_of, [batch])
    optimizer.clear()
    if optimizer.distributed:
        dist.barrier()


def run_distill_rank(rank: int, world: int, run: DistillRun, store: str) -> None:
    """Entry point of one rank; `store` is a file that the ranks meet at."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        train_drafter(run, rank, world)
    finally:
        dist.destroy_process_group()
