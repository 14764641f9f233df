"""Drafters trained for the embedded target in several ways, on the same texts.

A training changes its process (threads, what becomes of freed memory), so each has one of its own.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from drafter_service.models.embedded.block_causal import BlockCausalDLM
from foredraft_align.data.chat import ChatTokenizer
from foredraft_align.data.conversation import given
from foredraft_align.data.generate import Writer
from foredraft_align.data.store import Store
from foredraft_align.data.write import TEMPERATURES
from foredraft_align.drafter.block_causal import BlockCausalStudent
from foredraft_align.drafter.start import drafter_config
from foredraft_align.evaluate import tokens_per_round
from foredraft_align.loop.objectives import Objective
from foredraft_align.loop.train import TrainPlan, train
from foredraft_align.progress import read_log
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target

_LAYERS, _SEED, _BATCH = 2, 5, 96
_LONGEST_PROMPT = 64
_SHARD = "00000.safetensors"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of training: its objective, and the length of drafts in tokens."""

    objective: Objective
    block: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of a trained variant."""

    mats: tuple[float, ...]
    """accepted tokens per round of each held-out greedy text, bonus excluded"""
    losses: tuple[float, ...]
    """of each step, in nats"""


@dataclass(frozen=True, slots=True)
class Setup:
    """The target, where texts and drafters go, tokens of a text, steps of a training and blocks of
    each step.
    """

    target: Path
    folder: Path
    tokens: int
    steps: int
    rows: int = 240


def train_variants(
    setup: Setup,
    prompts: Sequence[str],
    held_out: Sequence[str],
    variants: Mapping[str, Variant],
) -> dict[str, Outcome]:
    """Return each variant's figures.

    The target continues each of the prompts for training, greedily and at temperatures, and each of
    the held-out ones greedily.
    """
    _apart(partial(_write, setup, "train", prompts, TEMPERATURES))
    _apart(partial(_write, setup, "held_out", held_out, (0.0,)))
    found = {}
    for name, variant in variants.items():
        _apart(partial(_train, setup, name, variant))
        found[name] = _outcome(setup, name, variant)
    return found


def _apart(task: Callable[[], None]) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(task).result()


def _write(setup: Setup, name: str, prompts: Sequence[str], temperatures: Sequence[float]) -> None:
    config = VerifierConfig(
        model=setup.target, kv_tokens=_BATCH * (setup.tokens + 128), prefix_cache_tokens=0
    )
    tokenizer = ChatTokenizer(setup.target)
    conversations = [
        given(
            tokenizer.ids(prompt),
            temperatures[number % len(temperatures)],
            (_LONGEST_PROMPT, setup.tokens),
            tokenizer.format,
        )
        for number, prompt in enumerate(prompts)
    ]
    texts, states = Writer(load_target(config), _BATCH, ()).write(conversations, _SEED)
    (setup.folder / name).mkdir(parents=True, exist_ok=True)
    texts.save(setup.folder / name / _SHARD, states)


def _train(setup: Setup, name: str, variant: Variant) -> None:
    texts = setup.folder / "train"
    plan = TrainPlan(
        output=setup.folder / name,
        texts=texts,
        train=tuple(range(len(Store(texts)))),
        held_out=(),
        steps=setup.steps,
        rows=setup.rows,
        block_sizes=(variant.block,),
        block_shares=(1.0,),
        objective=variant.objective,
        seed=_SEED,
        checkpoint_steps=setup.steps,
    )
    config = drafter_config(setup.target, _LAYERS, variant.block, 0, ())
    every = tuple(range(config.vocab_size))
    config = replace(config, shortlist_size=len(every))
    make = partial(BlockCausalStudent.from_target, config, setup.target, every, _SEED)
    train(plan, make, 0, 1, lambda _: None)


def _outcome(setup: Setup, name: str, variant: Variant) -> Outcome:
    folder, texts = setup.folder / name, Store(setup.folder / "held_out")
    student = BlockCausalStudent(BlockCausalDLM.load(folder, torch.float32, setup.target))
    mats = [
        tokens_per_round(student, [texts.text(index)], variant.block).mat
        for index in range(len(texts))
    ]
    losses = [each.loss for each in read_log(folder / "run" / "log.jsonl")]
    return Outcome(tuple(mats), tuple(losses))
