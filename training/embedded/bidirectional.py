"""A small fully bidirectional drafter in Dream's format: python -m training.embedded.bidirectional.

There is no small public one, and what a stale prefix costs is seen on a trained one only
(bench/micro/prefix_refresh.py). As Dream began as an autoregressive model, this one begins as the
embedded drafter: its layers and embedding, without its edge head, its first slot as the mask. It is
trained as it is used: a text's beginning is seen, a block behind it is masked, nothing follows;
every row sees every other, and a token is read one row earlier (shift 1). In the last third of the
time every other step masks tokens anywhere: then what follows a token matters, too.

Work files go below build/train; `foredraft train corpus` comes first. A run of --seconds ends with
a checkpoint, and the next one goes on from it until --minutes are used.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from drafter_service.models.embedded.block_causal import BlockCausalDLM
from drafter_service.models.families.attending import Rows
from drafter_service.models.families.decoder import Decoder, DecoderConfig
from foredraft_align.loop.schedule import TimedWSD
from training.corpus.corpus import read_corpus
from training.corpus.tokenizer import EOS_ID, MASK_ID, encode_documents, load_tokenizer

EMBEDDED = Path("models/embedded")
DOCUMENTS = 1000
"""Documents of the corpus, which is shuffled, to train on: more than the time allows to read."""
ROWS = 2048
"""Rows of a step, texts and blocks together."""
PREFIXES = (8, 192)
"""The least and the most tokens before a block; their logarithms are drawn evenly."""
BLOCKS = (4, 8)
ALL_MASKED = 0.7
"""Share of steps whose blocks hold masks alone, as a block's first pass does."""
INFILL_FROM, INFILLED = 2 / 3, 0.5
"""From this share of the time on, this share of the steps masks tokens anywhere instead."""
GAMMA = 0.7
"""A slot's loss counts this much less than that of the slot before."""


def begun(drafter: Path) -> Decoder:
    """Return the network to train: the embedded drafter's weights in Qwen2's places."""
    source = BlockCausalDLM.load(drafter, torch.float32)
    c, state = source.config, source.state_dict()
    model = Decoder(
        DecoderConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            num_layers=c.num_layers,
            num_heads=c.num_heads,
            num_kv_heads=c.num_heads,
            head_dim=c.head_dim,
            intermediate_size=c.intermediate_size,
            rope_theta=c.rope_theta,
            rms_eps=c.rms_eps,
            max_len=c.max_position_embeddings,
            qkv_bias=True,
            tied=True,
        )
    )
    embedding = state["embedding.weight"]
    embedding[MASK_ID] = state["mask_slots"][0]
    weights = {"norm.weight": state["norm.weight"]}
    weights["embed_tokens.weight"] = weights["lm_head.weight"] = embedding
    for at in range(c.num_layers):
        old, new = f"layers.{at}", f"layers.{at}.self_attn"
        for name, part in zip("qkv", state[f"{old}.qkv.weight"].chunk(3), strict=True):
            weights[f"{new}.{name}_proj.weight"] = part
            weights[f"{new}.{name}_proj.bias"] = torch.zeros(len(part))
        weights[f"{new}.o_proj.weight"] = state[f"{old}.out.weight"]
        for name, part in zip(("gate", "up"), state[f"{old}.gate_up.weight"].chunk(2), strict=True):
            weights[f"{old}.mlp.{name}_proj.weight"] = part
        weights[f"{old}.mlp.down_proj.weight"] = state[f"{old}.down.weight"]
        weights[f"{old}.input_layernorm.weight"] = state[f"{old}.attention_norm.weight"]
        weights[f"{old}.post_attention_layernorm.weight"] = state[f"{old}.mlp_norm.weight"]
    model.load_state_dict(weights)
    model.lm_head.weight = model.embed_tokens.weight
    return model


def save(model: Decoder, folder: Path, tokenizer: Path) -> None:
    """Write the drafter as a Dream checkpoint is written, its tokenizer beside it."""
    c = model.config
    folder.mkdir(parents=True, exist_ok=True)
    fields: dict[str, Any] = {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "intermediate_size": c.intermediate_size,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.rms_eps,
        "max_position_embeddings": c.max_len,
        "tie_word_embeddings": True,
        "mask_token_id": MASK_ID,
        "eos_token_id": EOS_ID,
    }
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    state = {
        f"model.{name}": value.detach().bfloat16()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(tokenizer / "tokenizer.json", folder)


@dataclass(frozen=True)
class Batch:
    """Texts of one length, what is fed of them, and what each token's loss counts: all [b, n]."""

    tokens: Tensor
    inputs: Tensor
    weight: Tensor


def draw(data: np.ndarray, random: np.random.Generator, infill: bool) -> Batch:
    """Return a step's texts, a block masked at the end of each, or tokens anywhere to infill."""
    prefix = int(np.exp(random.uniform(*np.log(PREFIXES))))
    block = int(random.choice(BLOCKS))
    length = prefix + block
    starts = random.integers(0, len(data) - length, ROWS // length)
    tokens = data[starts[:, None] + np.arange(length)].astype(np.int64)
    slot = np.arange(length) - prefix
    counts = np.where(slot < 0, 0.0, GAMMA ** np.maximum(slot, 0))
    share = 1.0 if random.random() < ALL_MASKED else random.uniform()
    if infill:
        # A text's first token is not read anywhere.
        counts, share = np.where(np.arange(length) > 0, 1.0, 0.0), random.uniform()
    masked = (random.random(tokens.shape) < share) & (counts > 0)
    return Batch(
        torch.from_numpy(tokens),
        torch.from_numpy(np.where(masked, MASK_ID, tokens)),
        torch.from_numpy(np.where(masked, counts, 0.0).astype(np.float32)),
    )


def loss(model: Decoder, batch: Batch) -> Tensor:
    """Return the mean loss of the masked tokens, each read one row before its own."""
    count, length = batch.inputs.shape

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        texts = (each.unflatten(0, (count, length)).transpose(1, 2) for each in (q, k, v))
        return F.scaled_dot_product_attention(*texts).transpose(1, 2).flatten(0, 1)

    at = torch.arange(length).repeat(count)
    rows = Rows(batch.inputs.flatten(), at, torch.zeros(len(at)))
    states = model(rows, attend).unflatten(0, (count, length))
    weight = batch.weight[:, 1:]
    logits = model.lm_head(states[:, :-1][weight > 0])
    each = F.cross_entropy(logits, batch.tokens[:, 1:][weight > 0], reduction="none")
    return (each * weight[weight > 0]).sum() / weight.sum().clamp(min=1e-6)


def encoded(work: Path, tokenizer: Path) -> np.ndarray:
    """Return the corpus' first documents in the embedded pair's tokens, kept in the work folder."""
    file = work / "bidirectional.npy"
    if not file.is_file():
        documents = read_corpus(work / "corpus.jsonl")[:DOCUMENTS]
        np.save(file, encode_documents(load_tokenizer(tokenizer), documents))
    found: np.ndarray = np.load(file)
    return found


def train(work: Path, out: Path, seconds: float, budget: float, peak: float) -> float:
    """Train for `seconds` of a `budget` in seconds, write the drafter; return the time used."""
    data = encoded(work, EMBEDDED / "tokenizer")
    model = begun(EMBEDDED / "drafter").requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
    used, step, file = 0.0, 0, work / "bidirectional.pt"
    if file.is_file():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        used, step = saved["used"], saved["step"]
    schedule = TimedWSD(peak, budget)
    begin, last, recent = used - time.monotonic(), used, []
    end = min(budget, used + seconds)
    while used < end:
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(used)
        random = np.random.default_rng([17, step])
        infill = used >= INFILL_FROM * budget and random.random() < INFILLED
        batch = draw(data, random, infill)
        found = loss(model, batch)
        optimizer.zero_grad()
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        used, step = begin + time.monotonic(), step + 1
        recent.append(found.item())
        if used - last > 15 or used >= end:
            sys.stdout.write(f"{used:6.0f} s, step {step}: loss {np.mean(recent):.3f}\n")
            sys.stdout.flush()
            last, recent = used, []
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "used": used,
            "step": step,
        },
        file,
    )
    save(model, out, EMBEDDED / "tokenizer")
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/train"))
    parser.add_argument("--out", type=Path, default=Path("build/train/bidirectional"))
    parser.add_argument("--minutes", type=float, default=10.5, help="of training, in all")
    parser.add_argument("--seconds", type=float, default=10.5 * 60, help="of this run")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    used = train(args.work, args.out, args.seconds, 60 * args.minutes, args.lr)
    sys.stdout.write(f"{args.out}: {used / 60:.1f} of {args.minutes:g} minutes\n")


if __name__ == "__main__":
    main()
