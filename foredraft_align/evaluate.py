"""How many tokens of a drafter's path a round accepts, on texts that it was not trained on.

A text is the target's own and fixed, and a prefix's keys and values never depend on a draft: so the
drafts at all positions of a text come from a few passes, and rounds are walked afterwards. From
position n with a accepted tokens the next round begins at n + a + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from foredraft.repetition import GRAM, repetition
from foredraft_align.data.store import Text
from foredraft_align.drafter.student import Student
from foredraft_align.loop.batches import Batch, make_batch
from foredraft_align.loop.precision import fast_products

_BLOCKS = 64
"""Blocks of one pass."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Figures over greedy texts; a draft is the best path, each token after the one before it."""

    mat: float
    """mean accepted tokens of a round, bonus and correction excluded"""
    by_position: tuple[float, ...]
    """share of rounds that accept at least so many tokens, from 1 on"""
    rounds: int
    repetition: float
    """mean share of 4-grams of an answer that stood in it before"""


def tokens_per_round(student: Student, texts: Sequence[Text], slots: int) -> Acceptance:
    """Return the figures of drafts of `slots` tokens over the greedy ones among some texts."""
    greedy = [text for text in texts if text.temperature == 0]
    accepted = [each for text in greedy for each in _rounds(_kept(student, text, slots))]
    # What is shorter than a 4-gram can repeat nothing.
    answers = [text.tokens[text.answer :].tolist() for text in greedy]
    answers = [answer for answer in answers if len(answer) >= GRAM]
    counts = np.array(accepted) if accepted else np.zeros(1)
    return Acceptance(
        float(counts.mean()),
        tuple(float((counts >= least).mean()) for least in range(1, slots + 1)),
        len(accepted),
        fmean(map(repetition, answers)) if answers else 0.0,
    )


@torch.inference_mode()
def _kept(student: Student, text: Text, slots: int) -> npt.NDArray[np.int64]:
    """Return, for each position of the answer, how many tokens of a draft there are the text's."""
    anchors = np.arange(text.answer, len(text.tokens))
    kept = []
    for at in range(0, len(anchors), _BLOCKS):
        batch = make_batch([text], slots, [anchors[at : at + _BLOCKS]])
        with fast_products():
            path = best_path(student, batch, student.hidden_of_slots(batch))
        right = (path == batch.labels[0]) & batch.inside[0]
        kept.append(right.long().cumprod(1).sum(1).numpy())
    found: npt.NDArray[np.int64] = np.concatenate(kept)
    return found


def best_path(student: Student, batch: Batch, hidden: Tensor) -> Tensor:
    """Return the tokens [blocks, slots] of one text's drafts, each the best after the last one."""
    _, blocks, slots = batch.labels.shape
    states = hidden.view(blocks, slots, -1)
    previous = batch.previous[0, :, 0]
    path = []
    for slot in range(slots):
        previous = student.best(states[:, slot], previous)
        path.append(previous)
    return torch.stack(path, dim=1)


def _rounds(kept: npt.NDArray[np.int64]) -> list[int]:
    at, found = 0, []
    while at < len(kept):
        found.append(int(kept[at]))
        at += int(kept[at]) + 1
    return found
