"""Byte-level BPE in which a newline with its following indentation is one pre-token.

"Newline + indent" carries Python's block structure and follows almost every line: one token for it
keeps contexts long.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.corpus.corpus import Document

EOS_TOKEN, EOS_ID = "<|eos|>", 0
MASK_TOKEN, MASK_ID = "<|mask|>", 1
VOCAB_SIZE = 4096
# Newline(s) with indentation | word with one leading space | up to three digits | punctuation |
# spaces.
SPLIT_PATTERN = r"\n+[ \t]*| ?[A-Za-z_][A-Za-z]*|_+[A-Za-z]*| ?\d{1,3}| ?[^\sA-Za-z0-9_]+|[^\S\n]+"


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Trains the byte-level BPE; deterministic for a fixed iteration order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS_TOKEN, MASK_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json in the Hugging Face layout."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS_TOKEN,
        pad_token=EOS_TOKEN,
        mask_token=MASK_TOKEN,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(directory)


def load_tokenizer(directory: Path) -> Tokenizer:
    """Loads tokenizer.json. Raises FileNotFoundError when it is missing."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"no tokenizer at {path}")
    return Tokenizer.from_file(str(path))


def encode_documents(tokenizer: Tokenizer, documents: list[Document]) -> np.ndarray:
    """All documents as one uint16 stream, each ended by <|eos|>."""
    parts: list[np.ndarray] = []
    for start in range(0, len(documents), 256):
        for encoding in tokenizer.encode_batch(
            [document.text for document in documents[start : start + 256]]
        ):
            parts.append(np.asarray([*encoding.ids, EOS_ID], dtype=np.uint16))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint16)
