"""Tiny random checkpoints of public kinds, each with a tokenizer of its own, and drafters for them.

The tokenizers are byte-level BPE, trained here, whose special tokens are those of the released
models: no two are alike, and none ends a text as the embedded pair does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

BOOK = (
    "def mean(values):\n    return sum(values) / len(values)\n\n\n"
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.\n"
)
# More than the tokenizers have: public models pad their embeddings.
VOCABULARY = 320
MAX_LEN = 256
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_LEN,
    "initializer_range": 0.2,
}


@dataclass(frozen=True)
class Kind:
    """A public kind of target.

    specials are its tokenizer's special tokens. What ends its texts is said in three places:
    generation_config.json, config.json and the tokenizer's end of a turn.
    """

    config: Any
    model: Any
    specials: tuple[str, ...]
    generation_eos: tuple[str, ...]
    config_eos: str
    turn_eos: str
    ends: tuple[str, ...]


KINDS = {
    "llama": Kind(
        LlamaConfig,
        LlamaForCausalLM,
        ("<unk>", "<s>", "</s>", "<|eot_id|>"),
        ("</s>", "<|eot_id|>"),
        "</s>",
        "</s>",
        ("</s>", "<|eot_id|>"),
    ),
    "qwen2": Kind(
        Qwen2Config,
        Qwen2ForCausalLM,
        ("<|im_start|>", "<|endoftext|>", "<|im_end|>"),
        ("<|endoftext|>",),
        "<|endoftext|>",
        "<|im_end|>",
        ("<|endoftext|>", "<|im_end|>"),
    ),
    "qwen3": Kind(
        Qwen3Config,
        Qwen3ForCausalLM,
        ("<think>", "<|endoftext|>"),
        (),
        "<|endoftext|>",
        "<|endoftext|>",
        ("<|endoftext|>",),
    ),
}


@dataclass(frozen=True)
class Checkpoint:
    """A written target: its folder, its tokenizer and the token ids that end its texts."""

    folder: Path
    tokenizer: Tokenizer
    ends: tuple[int, ...]


def train_tokenizer(specials: tuple[str, ...]) -> Tokenizer:
    """Return a byte-level BPE over BOOK whose first ids are the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([BOOK], trainer)
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, eos: str) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": eos}}))


def write_target(folder: Path, name: str) -> Checkpoint:
    """Write a tiny target of a kind, with its tokenizer, as released models lie in their folder."""
    kind = KINDS[name]
    tokenizer = train_tokenizer(kind.specials)
    torch.manual_seed(len(name))
    config = kind.config(**SIZES, head_dim=32, eos_token_id=tokenizer.token_to_id(kind.config_eos))
    kind.model(config).save_pretrained(folder)
    ids = [tokenizer.token_to_id(token) for token in kind.generation_eos]
    said = {"eos_token_id": ids} if ids else {}
    (folder / "generation_config.json").write_text(json.dumps(said))
    write_tokenizer(folder, tokenizer, kind.turn_eos)
    ids_of = tokenizer.get_vocab()
    return Checkpoint(folder, tokenizer, tuple(ids_of[token] for token in kind.ends))


def write_drafter(folder: Path, target: Checkpoint) -> Path:
    """Write a tiny random drafter in Dream's format, with the target's tokenizer."""
    torch.manual_seed(3)
    Qwen2ForCausalLM(Qwen2Config(**SIZES)).save_pretrained(folder)
    fields = {
        **{key: value for key, value in SIZES.items() if key != "initializer_range"},
        "model_type": "Dream",
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "mask_token_id": VOCABULARY - 1,
        "eos_token_id": target.ends[0],
    }
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "tokenizer.json").write_bytes((target.folder / "tokenizer.json").read_bytes())
    return folder
