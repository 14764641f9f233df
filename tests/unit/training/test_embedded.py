"""The committed pair: complete, unchanged, and its parts fit together."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from drafter_service.models.embedded.block_causal import BlockCausalDLM
from drafter_service.models.embedded.int8_rows import from_int8_rows, to_int8_rows
from drafter_service.proposals.proxies.ngram_table import NgramTable
from training.corpus.prompts import read_prompts
from training.corpus.tokenizer import EOS_ID, MASK_ID, load_tokenizer
from training.embedded.card import MANIFEST, MAX_BYTES, file_digests

EMBEDDED = Path(__file__).parents[3] / "models" / "embedded"


def test_files_are_those_of_the_manifest() -> None:
    assert file_digests(EMBEDDED) == json.loads((EMBEDDED / MANIFEST).read_text())
    assert sum(path.stat().st_size for path in EMBEDDED.rglob("*")) <= MAX_BYTES


def test_parts_share_vocabulary_and_embedding() -> None:
    drafter = BlockCausalDLM.load(EMBEDDED / "drafter", torch.bfloat16)
    target = load_file(EMBEDDED / "target" / "model.safetensors")["model.embed_tokens.weight"]
    rounded = from_int8_rows(to_int8_rows({"embedding": target}))["embedding"]
    assert torch.equal(drafter.embedding.weight, rounded)
    tokenizer = load_tokenizer(EMBEDDED / "tokenizer")
    assert tokenizer.get_vocab_size() == len(target)
    assert NgramTable.load(EMBEDDED / "proxy").vocab_size == len(target)
    assert (drafter.config.eos_token_id, drafter.config.mask_token_id) == (EOS_ID, MASK_ID)


def test_prompts_round_trip_and_are_enough() -> None:
    tokenizer = load_tokenizer(EMBEDDED / "tokenizer")
    prompts = read_prompts(EMBEDDED / "heldout_prompts.jsonl")
    assert len(prompts) >= 240 and len({prompt["module"] for prompt in prompts}) >= 25
    for prompt in prompts:
        ids = tokenizer.encode(prompt["text"]).ids
        assert tokenizer.decode(ids) == prompt["text"] and len(ids) >= 128
