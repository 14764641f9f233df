"""Which texts a shard holds, and the process that writes shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.errors import ConfigError
from foredraft_align.data.chat import ChatFormat, ChatTokenizer
from foredraft_align.data.conversation import Conversation, begun, given
from foredraft_align.data.generate import Writer
from foredraft_align.data.openings import OPENINGS
from verifier_service.config import VerifierConfig

TEMPERATURES = (0.0, 0.8, 0.0, 0.8, 1.0)
"""Of answers, in turn: 40 % greedy, 40 % at 0.8, 20 % at 1."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What the target writes: `shards` files of `texts` texts each, in `folder`."""

    target: Path
    folder: Path
    shards: int
    texts: int = 256
    batch: int = 96
    max_question: int = 200
    max_tokens: int = 512
    layer_ids: tuple[int, ...] = ()
    prompts: Path | None = None
    """JSON lines with a prompt each, for half of the texts."""
    seed: int = 0
    device: str = "cpu"
    dtype: str = "bf16"

    def path(self, shard: int) -> Path:
        """Where a shard is stored."""
        return self.folder / f"{shard:05d}.safetensors"


def read_prompts(file: Path) -> list[str]:
    """Return a file's prompts; raise ConfigError where it is not JSON lines with a prompt each."""
    try:
        return [str(json.loads(line)["prompt"]) for line in file.read_text().splitlines()]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"prompts: {file} is no file of JSON lines with a prompt", param="prompts"
        ) from None


def conversations(
    plan: WritePlan, shard: int, tokenizer: ChatTokenizer, prompts: Sequence[str]
) -> list[Conversation]:
    """Return a shard's conversations before the target wrote any of them; the same for the same
    plan.
    """
    random = np.random.default_rng([plan.seed, shard])
    format: ChatFormat = tokenizer.format
    limits = (plan.max_question, plan.max_tokens)
    found = []
    for number in range(plan.texts):
        temperature = TEMPERATURES[number % len(TEMPERATURES)]
        if prompts and random.random() < 0.5:
            prompt = tokenizer.ids(prompts[int(random.integers(len(prompts)))])
            found.append(given(prompt, temperature, limits, format))
        else:
            opening = tokenizer.ids(OPENINGS[int(random.integers(len(OPENINGS)))])
            found.append(begun(opening, temperature, limits, format))
    return found


def write_shards(plan: WritePlan, shards: Sequence[int], threads: int = 1) -> None:
    """Write those of some shards that are not there yet, in this process."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard in shards if not plan.path(shard).is_file()]
    if not missing:
        return
    # Imported here: the command and those who train load no target, and its code takes seconds.
    from verifier_service.load import load_target, prepare_threads

    blocks = -(-plan.max_tokens // 64) + 1
    config = VerifierConfig(
        model=plan.target,
        device=plan.device,
        dtype=plan.dtype,
        threads=threads,
        kv_tokens=plan.batch * blocks * 64,
        prefix_cache_tokens=0,
    )
    prepare_threads(config)
    writer = Writer(load_target(config), plan.batch, plan.layer_ids)
    tokenizer = ChatTokenizer(plan.target)
    prompts = read_prompts(plan.prompts) if plan.prompts else []
    for shard in missing:
        begun_texts = conversations(plan, shard, tokenizer, prompts)
        texts, states = writer.write(begun_texts, plan.seed * 1_000_003 + shard)
        texts.save(plan.path(shard), states)
