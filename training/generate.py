"""Batched decoding with the target: continuations for distillation, evaluation and the proxy.

All rows of a batch have the same prompt length and move in step, so no padding is needed. Sampling
is Gumbel-max: argmax of log-probabilities plus noise, the rule of the verifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from training.target_model import TargetLayer, TargetModel, load_target, rope_tables, rotate

TOP = 16
TEMPERATURES = (0.0, 0.0, 0.8, 0.8, 1.0)
"""Repeated over the rows of a batch: 40 % greedy, 40 % at 0.8, 20 % at 1."""


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
    """The target with a key-value cache [layers, 2, batch, heads, length, head_dim]."""

    def __init__(
        self, directory: Path, dtype: torch.dtype = torch.bfloat16, *, compiled: bool = False
    ) -> None:
        """`compiled` makes decoding of large batches about twice as fast after some 20 s."""
        self.model: TargetModel = load_target(directory).to(dtype).requires_grad_(False).eval()
        self.dtype = dtype
        shape = self.model.shape
        width = shape.hidden // shape.heads
        self.cos, self.sin = rope_tables(torch.arange(shape.max_positions), width, shape.rope_theta)
        self.cache = torch.zeros(0)
        self.attend_one = torch.compile(_attend_one, dynamic=True) if compiled else _attend_one

    def start(self, batch: int, length: int) -> None:
        """Makes room for `batch` rows of `length` tokens."""
        shape = self.model.shape
        size = (shape.layers, 2, batch, shape.heads, length, shape.hidden // shape.heads)
        self.cache = torch.zeros(size, dtype=self.dtype)

    @torch.inference_mode()
    def logits(self, tokens: Tensor, position: int) -> Tensor:
        """fp32 logits [batch, vocab] after tokens [batch, n] at position..position+n-1.

        More than one token at a time only at position 0.
        """
        x = self.model.embedding(tokens)
        end = position + tokens.shape[1]
        cos, sin = self.cos[position:end], self.sin[position:end]
        for index, layer in enumerate(self.model.layers):
            x = self._layer(layer, x, cos, sin, self.cache[index], position)
        return F.linear(self.model.norm(x[:, -1]), self.model.embedding.weight).float()

    def _layer(
        self, layer: TargetLayer, x: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, position: int
    ) -> Tensor:
        """One layer over x [batch, n, hidden]; adds keys and values to cache [2, batch, ...]."""
        b, n, h = x.shape
        fused = layer.qkv(layer.attention_norm(x)).view(b, n, 3, layer.heads, -1)
        q, k, v = fused.permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        cache[0, :, :, position : position + n] = k
        cache[1, :, :, position : position + n] = v
        past = cache[:, :, :, : position + n].flatten(1, 2)
        if n == 1:
            mixed = self.attend_one(q.flatten(0, 1), past[0], past[1]).view(b, layer.heads, 1, -1)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + layer.out(mixed.transpose(1, 2).reshape(b, n, h))
        gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
        return x + layer.down(F.silu(gate) * up)


def _attend_one(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one query per row: q [rows, 1, d], keys and values [rows, length, d].

    Written as products and sums because compiled that way it runs at memory speed, where torch's
    attention and batched matmul take four times as long for a single bf16 query.
    """
    scores = (q.float() * keys.float()).sum(-1) / q.shape[-1] ** 0.5
    weights = scores.softmax(-1).unsqueeze(-1)
    return (weights * values.float()).sum(1, keepdim=True).to(q.dtype)


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
        tokens.numpy().astype(np.uint16), length, temperature.numpy(), top_ids, top_log_probs
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
    decoder = Decoder(plan.target, compiled=True)
    streams = [np.load(plan.data / f"{name}.npy", mmap_mode="r") for name in ("core", "rest")]
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
            decoder, torch.from_numpy(prompts), plan.generated, temperature, noise
        )
        result.save(path.with_suffix(".new.npz"))
        path.with_suffix(".new.npz").replace(path)
