"""Drafters taught for the embedded target in several ways, on the same texts.

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
from foredraft_align.drafter.start import drafter_config, drafter_from_target
from foredraft_align.evaluate import tokens_per_round
from foredraft_align.loop.objectives import Objective
from foredraft_align.loop.train import TrainPlan, train
from foredraft_align.progress import read_log
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target

_LAYERS, _ROWS, _SEED, _BATCH = 2, 240, 5, 96
_LONGEST_PROMPT = 64
_SHARD = "00000.safetensors"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One way of teaching: its objective, and the length of drafts in tokens."""

    objective: Objective
    block: int


@dataclass(frozen=True, slots=True)
class Taught:
    """What a lesson came to."""

    mats: tuple[float, ...]
    """accepted tokens per round of each held-out greedy text, bonus excluded"""
    losses: tuple[float, ...]
    """of each step, in nats"""


@dataclass(frozen=True, slots=True)
class School:
    """The target, where texts and drafters go, tokens of a text, and steps of a training."""

    target: Path
    folder: Path
    tokens: int
    steps: int


def teach(
    school: School,
    prompts: Sequence[str],
    held_out: Sequence[str],
    lessons: Mapping[str, Lesson],
) -> dict[str, Taught]:
    """Return what each lesson came to.

    The target continues each of the prompts for training, greedily and at temperatures, and each of
    the held-out ones greedily.
    """
    _apart(partial(_write, school, "train", prompts, TEMPERATURES))
    _apart(partial(_write, school, "held_out", held_out, (0.0,)))
    found = {}
    for name, lesson in lessons.items():
        _apart(partial(_train, school, name, lesson))
        found[name] = _outcome(school, name, lesson)
    return found


def _apart(task: Callable[[], None]) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(task).result()


def _write(
    school: School, name: str, prompts: Sequence[str], temperatures: Sequence[float]
) -> None:
    config = VerifierConfig(
        model=school.target, kv_tokens=_BATCH * (school.tokens + 128), prefix_cache_tokens=0
    )
    tokenizer = ChatTokenizer(school.target)
    conversations = [
        given(
            tokenizer.ids(prompt),
            temperatures[number % len(temperatures)],
            (_LONGEST_PROMPT, school.tokens),
            tokenizer.format,
        )
        for number, prompt in enumerate(prompts)
    ]
    texts, states = Writer(load_target(config), _BATCH, ()).write(conversations, _SEED)
    (school.folder / name).mkdir(parents=True, exist_ok=True)
    texts.save(school.folder / name / _SHARD, states)


def _train(school: School, name: str, lesson: Lesson) -> None:
    texts = school.folder / "train"
    plan = TrainPlan(
        output=school.folder / name,
        texts=texts,
        train=tuple(range(len(Store(texts)))),
        held_out=(),
        steps=school.steps,
        rows=_ROWS,
        block_sizes=(lesson.block,),
        block_shares=(1.0,),
        objective=lesson.objective,
        seed=_SEED,
        checkpoint_steps=school.steps,
    )
    config = drafter_config(school.target, _LAYERS, lesson.block, 0, ())
    every = tuple(range(config.vocab_size))
    config = replace(config, shortlist_size=len(every))
    make = partial(drafter_from_target, config, school.target, every, _SEED)
    train(plan, make, 0, 1, lambda _: None)


def _outcome(school: School, name: str, lesson: Lesson) -> Taught:
    folder, texts = school.folder / name, Store(school.folder / "held_out")
    model = BlockCausalDLM.load(folder, torch.float32, school.target)
    mats = [
        tokens_per_round(model, [texts.text(index)], lesson.block).mat
        for index in range(len(texts))
    ]
    losses = [each.loss for each in read_log(folder / "run" / "log.jsonl")]
    return Taught(tuple(mats), tuple(losses))
