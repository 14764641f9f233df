"""A tiny chat target and texts that it might have written, for the tests of `foredraft align`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from foredraft_align.data.texts import TOP, Texts
from tests.support.checkpoints import VOCABULARY, Checkpoint, write_target

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_chat_target(folder: Path, kind: str = "qwen2") -> Checkpoint:
    """Write a tiny target of a kind with a chat template."""
    target = write_target(folder, kind)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"chat_template": TEMPLATE}
    file.write_text(json.dumps(config))
    return target


def counting(count: int, length: int, states: int = 0) -> tuple[Texts, np.ndarray]:
    """Texts whose tokens count up from a random number, so that one layer can learn them.

    A token's hidden states, where there are some, are its own number.
    """
    random = np.random.default_rng(0)
    tokens = (random.integers(5, 100, count)[:, None] + np.arange(length)).astype(np.int32)
    assert tokens.max() < VOCABULARY
    flat = tokens.reshape(-1)
    top_ids = np.tile(np.arange(TOP, dtype=np.int32), (len(flat), 1))
    top_ids[:, 0] = flat
    log_probs = np.full((len(flat), TOP), -9.0, np.float16)
    log_probs[:, 0] = -0.01
    texts = Texts(
        flat,
        np.arange(count + 1, dtype=np.int64) * length,
        np.full(count, 4, np.int64),
        np.zeros(count, np.float32),
        top_ids,
        log_probs,
    )
    values = np.repeat(flat[:, None].astype(np.float32) / 100, states, axis=1)
    return texts, (values.view(np.uint32) >> 16).astype(np.uint16)
