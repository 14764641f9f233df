"""How well a drafter predicts a target: accepted tokens per round, by position, and repetition.

The target's continuation of a prompt is fixed (greedy, or by shared Gumbel noise), and the
drafter's prefix keys and values depend on committed tokens alone. So one pass gives the draft at
every anchor of a continuation, and rounds are walked afterwards: from anchor n with a accepted
tokens the next round starts at n + a + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from drafter_service.models.embedded.block_causal import COMMITTED, BlockCausalDLM
from training.embedded.generate import Continuations, Decoder, continue_prompts, gumbel

CANDIDATES = 32


@dataclass(frozen=True)
class DraftFigures:
    """Acceptance of drafts of one length over all rounds, bonus and correction excluded."""

    block: int
    temperature: float
    mat: float
    position_acceptance: tuple[float, ...]
    """share of rounds whose first j tokens were all accepted, j = 1..block"""
    rounds: int


def repetition_rate(tokens: np.ndarray) -> float:
    """Mean over rows [rows, length] of the share of 4-grams that already occurred in their row."""
    rates = []
    for row in tokens.tolist():
        grams = [tuple(row[i : i + 4]) for i in range(len(row) - 3)]
        rates.append(1 - len(set(grams)) / len(grams))
    return float(np.mean(rates))


def prompt_rows(prompts: list[list[int]], length: int) -> Tensor:
    """The last `length` tokens of every prompt that has as many; int64 [rows, length]."""
    return torch.tensor([prompt[-length:] for prompt in prompts if len(prompt) >= length])


def continuation_noise(rows: int, count: int, vocab: int, seed: int) -> Tensor:
    """Gumbel noise [rows, count, vocab] that target and drafter share."""
    return gumbel(torch.Generator().manual_seed(seed), rows, count, vocab)


@torch.inference_mode()
def drafts_everywhere(model: BlockCausalDLM, tokens: Tensor, first: int, block: int) -> Tensor:
    """Hidden states [anchors, block, hidden] of a draft block at every position first..len-1 of
    tokens [len].
    """
    length, anchors = len(tokens), len(tokens) - first
    anchor = torch.arange(first, length).repeat_interleave(block)
    slot = torch.arange(block).repeat(anchors)
    sees_clean = torch.arange(length)[None, :] < anchor[:, None]

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        clean = F.scaled_dot_product_attention(
            q[None, :, :length], k[None, :, :length], v[None, :, :length], is_causal=True
        )[0]
        heads, _, width = q.shape
        shape = (heads, anchors, block, width)
        queries = q[:, length:].reshape(shape).float()
        own_k, own_v = k[:, length:].reshape(shape).float(), v[:, length:].reshape(shape).float()
        prefix = queries.flatten(1, 2) @ k[:, :length].float().transpose(1, 2)
        prefix = prefix.masked_fill(~sees_clean, -torch.inf).view(heads, anchors, block, length)
        scores = torch.cat((prefix, queries @ own_k.transpose(2, 3)), dim=-1) / width**0.5
        weights = scores.softmax(-1)
        mixed = weights[..., length:] @ own_v
        mixed += (weights[..., :length].flatten(1, 2) @ v[:, :length].float()).view(shape)
        return torch.cat((clean, mixed.flatten(1, 2).to(clean.dtype)), dim=1).transpose(0, 1)

    hidden = model.forward_rows(
        torch.cat((tokens, torch.zeros_like(anchor))),
        torch.cat((torch.arange(length), anchor + slot)),
        torch.cat((torch.full((length,), COMMITTED), slot)),
        attend,
    )
    return hidden[length:].view(anchors, block, -1)


@dataclass(frozen=True)
class Lattice:
    """Top candidates of every slot of every anchor."""

    scores: Tensor
    """fp32 [anchors, block, CANDIDATES] base logits"""
    ids: Tensor
    """int64 [anchors, block, CANDIDATES]"""
    gates: Tensor
    """hidden states [anchors, block, hidden] for the edge head"""


@torch.inference_mode()
def lattice(model: BlockCausalDLM, hidden: Tensor) -> Lattice:
    """Keeps the best candidates of hidden [anchors, block, hidden] by base logits."""
    scores, ids = model.base_logits(hidden).float().topk(CANDIDATES)
    return Lattice(scores, ids, hidden)


@torch.inference_mode()
def draft_paths(
    model: BlockCausalDLM, nodes: Lattice, last: Tensor, temperature: float, noise: Tensor | None
) -> Tensor:
    """Drafted tokens [anchors, block]: each slot's best candidate given the one drafted before.

    `last` [anchors] is the committed token before each anchor; `noise` [anchors + block, vocab] is
    indexed by anchor + slot.
    """
    anchors, block, _ = nodes.ids.shape
    previous = last
    path = torch.empty(anchors, block, dtype=torch.int64)
    for slot in range(block):
        ids = nodes.ids[:, slot]
        edges = model.edge_scores(nodes.gates[:, slot], previous[:, None], ids)[:, 0]
        scores = nodes.scores[:, slot] + edges.float()
        if noise is not None:
            scores = scores / temperature + noise[slot : slot + anchors].gather(1, ids)
        previous = ids.gather(1, scores.argmax(-1, keepdim=True))[:, 0]
        path[:, slot] = previous
    return path


def accepted_lengths(path: Tensor, tokens: Tensor, first: int) -> Tensor:
    """Accepted length [anchors] of drafts [anchors, block]; anchors too near the end for a whole
    block are dropped.
    """
    block = path.shape[1]
    real = tokens[first:].unfold(0, block, 1)
    return (path[: len(real)] == real).long().cumprod(1).sum(1)


def walk_rounds(accepted: Tensor) -> list[int]:
    """Accepted lengths of the rounds that speculative decoding would really run."""
    rounds, anchor = [], 0
    while anchor < len(accepted):
        rounds.append(int(accepted[anchor]))
        anchor += rounds[-1] + 1
    return rounds


def draft_figures(
    model: BlockCausalDLM, data: Continuations, block: int, noise: Tensor | None
) -> DraftFigures:
    """Walks every continuation of `data` (all of one temperature) with drafts of `block` tokens."""
    temperature = float(data.temperature[0])
    rounds: list[int] = []
    for row, raw in enumerate(data.tokens.astype(np.int64)):
        tokens = torch.from_numpy(raw)
        hidden = drafts_everywhere(model, tokens, data.prompt, block)
        nodes = lattice(model, hidden)
        last = tokens[data.prompt - 1 : -1]
        shared = None if noise is None else F.pad(noise[row], (0, 0, 0, block))
        path = draft_paths(model, nodes, last, temperature, shared)
        rounds += walk_rounds(accepted_lengths(path, tokens, data.prompt))
    lengths = np.array(rounds)
    shares = tuple(round(float((lengths >= j).mean()), 4) for j in range(1, block + 1))
    return DraftFigures(block, temperature, float(lengths.mean()), shares, len(lengths))


def ngram_mat(data: Continuations, block: int) -> float:
    """Accepted length per round of copying after the longest earlier match of 4 to 2 tokens: the
    free alternative.
    """
    rounds: list[int] = []
    for row in data.tokens.tolist():
        position = data.prompt
        while position + block <= len(row):
            guess = _lookup(row[:position], block)
            real = row[position : position + block]
            accepted = next(
                (i for i, (a, b) in enumerate(zip(guess, real, strict=False)) if a != b), len(guess)
            )
            rounds.append(accepted)
            position += accepted + 1
    return float(np.mean(rounds))


def _lookup(prefix: list[int], count: int) -> list[int]:
    """The tokens after the latest earlier occurrence of the prefix's last 4, 3 or 2 tokens."""
    for size in (4, 3, 2):
        tail = prefix[-size:]
        for start in range(len(prefix) - size - 1, -1, -1):
            if prefix[start : start + size] == tail:
                return prefix[start + size : start + size + count]
    return []


def evaluate_pair(
    target: Path, drafter: Path, prompts: Tensor, count: int, seed: int = 0
) -> dict[str, object]:
    """All figures of the model card for prompts [rows, length] continued by `count` tokens."""
    decoder = Decoder(target)
    model = BlockCausalDLM.load(drafter, torch.bfloat16)
    report: dict[str, object] = {
        "prompts": len(prompts),
        "prompt_tokens": prompts.shape[1],
        "continuation_tokens": count,
    }
    for temperature in (0.0, 0.8, 1.0):
        noise = (
            continuation_noise(len(prompts), count, decoder.target.info.vocab_size, seed)
            if temperature
            else None
        )
        data = continue_prompts(
            decoder,
            prompts,
            count,
            torch.full((len(prompts),), temperature),
            torch.zeros(0) if noise is None else noise,
        )
        figures = [draft_figures(model, data, block, noise) for block in (8, 16)]
        report[f"T={temperature}"] = {
            "repetition": repetition_rate(data.tokens[:, data.prompt :]),
            "ngram_mat_8": ngram_mat(data, 8),
            **{f"k={each.block}": vars(each) for each in figures},
        }
    return report
