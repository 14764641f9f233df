"""Batched decoding with the target: continuations for distillation, evaluation and the proxy.

All rows of a batch have the same prompt length and move in step, so no padding is needed. The
target runs as it is served. Sampling is Gumbel-max: argmax of log-probabilities plus noise, the
rule of the verifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from training.corpus.encoded import encoded
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.port import Segment

TOP = 16
PASS_ROWS = 2048
"""Of one pass, which needs some 10 kB for each row."""
TEMPERATURES = (0.0, 0.8, 0.8, 0.8, 1.0)
"""Repeated over the rows of a batch: 20 % greedy, which loops, 60 % at 0.8, 20 % at 1."""


@dataclass(frozen=True)
class Continuations:
    """Prompts with continuations. `top_log_probs` are at temperature 1, whatever the
    row's own.
    """

    tokens: np.ndarray
    """uint16 [rows, prompt + generated]"""
    prompt: int
    temperature: np.ndarray
    """float32 [rows]"""
    top_ids: np.ndarray
    """uint16 [rows, generated, TOP], best first"""
    top_log_probs: np.ndarray
    """float16 [rows, generated, TOP]"""

    def save(self, path: Path) -> None:
        """Writes one .npz shard."""
        np.savez(
            path,
            tokens=self.tokens,
            prompt=self.prompt,
            temperature=self.temperature,
            top_ids=self.top_ids,
            top_log_probs=self.top_log_probs,
        )

    @classmethod
    def load(cls, path: Path) -> Continuations:
        """Reads one shard."""
        with np.load(path) as stored:
            return cls(
                stored["tokens"],
                int(stored["prompt"]),
                stored["temperature"],
                stored["top_ids"],
                stored["top_log_probs"],
            )


class Decoder:
    """The target as the verifier runs it, over rows that move in step."""

    def __init__(
        self, directory: Path, dtype: Literal["bf16", "fp32"] = "bf16", tokens: int = 128 * 512
    ) -> None:
        """`tokens` is the most that all rows may hold, in whole blocks of 64."""
        config = VerifierConfig(model=directory, dtype=dtype, kv_tokens=tokens)
        self.target = load_target(config)
        self.tables: list[list[int]] = []

    def start(self, batch: int, length: int) -> None:
        """Makes room for `batch` rows of `length` tokens."""
        pool, size = self.target.pool, self.target.block_tokens
        for table in self.tables:
            pool.give(table)
        self.tables = [pool.take(-(-length // size)) for _ in range(batch)]

    def logits(self, tokens: Tensor, position: int) -> Tensor:
        """fp32 logits [batch, vocab] after tokens [batch, n] at position..position+n-1."""
        segments = [
            Segment(table, position, row, 1)
            for table, row in zip(self.tables, tokens.tolist(), strict=True)
        ]
        step = max(1, PASS_ROWS // tokens.shape[1])
        starts = range(0, len(segments), step)
        parts = [self.target.forward(segments[at : at + step]) for at in starts]
        return torch.from_numpy(np.concatenate(parts))


def gumbel(generator: torch.Generator, *size: int) -> Tensor:
    """Standard Gumbel noise."""
    uniform = torch.rand(*size, generator=generator).clamp_(min=1e-20, max=1 - 1e-7)
    return -torch.log(-torch.log(uniform))


def continue_prompts(
    decoder: Decoder,
    prompts: Tensor,
    count: int,
    temperature: Tensor,
    noise: torch.Generator | Tensor,
) -> Continuations:
    """Generates `count` tokens for prompts [batch, prompt] (prefill from position 0).

    `temperature` is fp32 [batch], 0 meaning greedy. `noise` is a generator, or explicit noise
    [batch, count, vocab].
    """
    batch, length = prompts.shape
    decoder.start(batch, length + count)
    tokens = torch.zeros(batch, length + count, dtype=torch.int64)
    tokens[:, :length] = prompts
    top_ids = np.empty((batch, count, TOP), np.uint16)
    top_log_probs = np.empty((batch, count, TOP), np.float16)
    sampled = (temperature > 0).nonzero().flatten()
    logits = decoder.logits(prompts, 0)
    for step in range(count):
        log_probs = logits.log_softmax(-1)
        values, ids = log_probs.topk(TOP)
        top_ids[:, step], top_log_probs[:, step] = ids.numpy(), values.numpy()
        chosen = ids[:, 0].clone()
        if len(sampled):
            noisy = (
                gumbel(noise, len(sampled), logits.shape[1])
                if isinstance(noise, torch.Generator)
                else noise[sampled, step]
            )
            chosen[sampled] = (log_probs[sampled] / temperature[sampled, None] + noisy).argmax(-1)
        tokens[:, length + step] = chosen
        if step + 1 < count:
            logits = decoder.logits(chosen[:, None], length + step)
    return Continuations(
        tokens.numpy().astype(np.uint16),
        length,
        temperature.numpy(),
        top_ids,
        top_log_probs,
    )


@dataclass(frozen=True)
class GenerationPlan:
    """How much to generate. One shard in `long_every` has the long prompt, so that the drafter sees
    far context.
    """

    data: Path
    target: Path
    output: Path
    shards: int = 60
    batch: int = 128
    generated: int = 160
    prompt: int = 96
    long_prompt: int = 352
    long_every: int = 8
    core_share: float = 0.6
    seed: int = 0


def generate_shards(plan: GenerationPlan, rank: int = 0, world: int = 1) -> None:
    """Writes this rank's shards of continuations of training-corpus prompts; existing shards are
    kept.
    """
    torch.set_num_threads(1)
    plan.output.mkdir(parents=True, exist_ok=True)
    longest = -(-(plan.long_prompt + plan.generated) // 64) * 64
    decoder = Decoder(plan.target, tokens=plan.batch * longest)
    streams = [encoded(plan.data, name) for name in ("core", "rest")]
    for shard in tqdm(range(rank, plan.shards, world), desc=f"rank {rank}", unit="shard"):
        path = plan.output / f"{shard:04d}.npz"
        if path.is_file():
            continue
        random = np.random.default_rng([plan.seed, shard])
        length = plan.long_prompt if shard % plan.long_every == plan.long_every - 1 else plan.prompt
        prompts = np.empty((plan.batch, length), np.int64)
        for row in range(plan.batch):
            stream = streams[int(random.random() >= plan.core_share)]
            start = int(random.integers(0, stream.size - length))
            prompts[row] = stream[start : start + length]
        temperature = torch.tensor(
            [TEMPERATURES[row % len(TEMPERATURES)] for row in range(plan.batch)]
        )
        noise = torch.Generator().manual_seed(plan.seed * 1_000_003 + shard)
        result = continue_prompts(
            decoder,
            torch.from_numpy(prompts),
            plan.generated,
            temperature,
            noise,
        )
        result.save(path.with_suffix(".new.npz"))
        path.with_suffix(".new.npz").replace(path)
