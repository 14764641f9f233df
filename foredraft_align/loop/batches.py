"""Training batches: whole texts, and packed blocks of mask slots with what each should predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from foredraft_align.data.store import Store, Text


@dataclass(frozen=True, slots=True)
class Batch:
    """`b` texts of up to `n` tokens, each with `c` blocks of `s` mask slots."""

    tokens: Tensor
    """int64 [b, n], 0 behind a text's end"""
    states: Tensor
    """fp32 [b, n, layers x hidden], no columns where the drafter reads none"""
    anchors: Tensor
    """int64 [b, c], each block's first position"""
    labels: Tensor
    """int64 [b, c, s], the text's own tokens"""
    previous: Tensor
    """int64 [b, c, s], the tokens before those"""
    top_ids: Tensor
    """int64 [b, c, s, TOP]"""
    top_log_probs: Tensor
    """fp32 [b, c, s, TOP], the target's at temperature 1"""
    inside: Tensor
    """bool [b, c, s], False behind a text's end"""


def random_anchors(text: Text, blocks: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return positions [blocks] within a text's answer."""
    return random.integers(text.answer, len(text.tokens), blocks)


def make_batch(
    texts: Sequence[Text], slots: int, anchors: Sequence[npt.NDArray[np.int64]]
) -> Batch:
    """Return a batch of blocks of `slots` mask slots at the anchors of each text."""
    longest = max(len(text.tokens) for text in texts)

    def padded(arrays: list[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        out = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return out

    tokens = padded([text.tokens for text in texts]).astype(np.int64)
    ends = np.array([len(text.tokens) for text in texts])
    places = np.stack(anchors)[..., None] + np.arange(slots)
    inside = places < ends[:, None, None]
    read = np.minimum(places, ends[:, None, None] - 1)
    rows = np.arange(len(texts))[:, None, None]
    states = torch.from_numpy(padded([text.states for text in texts]).view(np.int16))
    log_probs = padded([text.top_log_probs for text in texts])[rows, read]
    return Batch(
        tokens=torch.from_numpy(tokens),
        states=states.view(torch.bfloat16).float(),
        anchors=torch.from_numpy(np.stack(anchors)),
        labels=torch.from_numpy(tokens[rows, read]),
        previous=torch.from_numpy(tokens[rows, read - 1]),
        top_ids=torch.from_numpy(
            padded([text.top_ids for text in texts])[rows, read].astype(np.int64)
        ),
        top_log_probs=torch.from_numpy(log_probs.astype(np.float32)),
        inside=torch.from_numpy(inside),
    )


class Batches:
    """The batches of a training: the n-th is the same whatever came before it.

    Texts of a batch are of similar lengths, so that little of it is filler.
    """

    def __init__(
        self, store: Store, chosen: Sequence[int], texts: int, rows: int, seed: int
    ) -> None:
        """chosen names the store's texts that are used; rows is the mask slots of each text."""
        self._store, self._chosen = store, np.array(chosen)
        self._texts, self._rows, self._seed = texts, rows, seed

    def draw(self, step: int, rank: int, world: int, slots: int) -> Batch:
        """Return a rank's part of a step's batch, in blocks of so many slots."""
        random = np.random.default_rng([self._seed, step, rank])
        mine = [self._store.text(index) for index in self._of_step(step)[rank::world]]
        blocks = self._rows // slots
        return make_batch(mine, slots, [random_anchors(text, blocks, random) for text in mine])

    def _of_step(self, step: int) -> npt.NDArray[np.int64]:
        """Return the texts of a step: neighbours by length among some in a random order."""
        pool = 8 * self._texts
        first = step * self._texts % len(self._chosen)
        passed = step * self._texts // len(self._chosen)
        order = np.random.default_rng([self._seed, passed]).permutation(self._chosen)
        start = first // pool * pool
        near = order[start : start + pool]
        near = near[np.argsort([self._store.length(index) for index in near], kind="stable")]
        groups = [near[at : at + self._texts] for at in range(0, len(near), self._texts)]
        mixed = np.random.default_rng([self._seed, passed, start]).permutation(len(groups))
        group = groups[mixed[(first - start) // self._texts % len(groups)]]
        # A group that is too small takes texts twice.
        return np.resize(group, self._texts)


def parts(batch: Batch, texts: int) -> Iterator[Batch]:
    """Yield a batch in parts of at most so many texts."""
    names = Batch.__slots__
    for at in range(0, len(batch.tokens), texts):
        yield Batch(*(getattr(batch, name)[at : at + texts] for name in names))
