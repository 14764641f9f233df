"""Is the forward row-invariant? Measured at start-up, on the loaded weights, bit by bit.

The same text is fed in chunks of several sizes, as one prefill, and beside other sessions; draft
trees are compared with their branches as paths; of any-subset models, prompts whose rows see each
other are among it, of block-diffusion models, blocks. Where every logit has the same bits each
time, speculative and plain decoding cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foredraft.decoding.tree import ROOT, branch
from foredraft.errors import ConfigError, WeightsError
from verifier_service.models.port import Segment, TargetModel, alloc

if TYPE_CHECKING:
    import numpy.typing as npt

    Logits = npt.NDArray[np.float32]

_CHUNKS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32)
_TEXT_TOKENS = 96
_PREFIX_TOKENS = 33
_NEIGHBOURS = 4
_TREES = 3


def measure(model: TargetModel) -> str:
    """Return "exact", or "tolerance <largest absolute logit difference>".

    Raise WeightsError where logits are not finite: this is also the model's self-test.
    """
    rng = np.random.default_rng(0)
    length = min(_TEXT_TOKENS, model.info.max_len)
    vocab = model.info.vocab_size
    texts = [rng.integers(0, vocab, length).tolist() for _ in range(1 + _NEIGHBOURS)]
    slots = [alloc(model, length) for _ in texts]
    try:
        reference = model.forward([Segment(slots[0], 0, texts[0], length)])
        if not np.isfinite(reference).all():
            raise WeightsError("the model's logits are not finite")
        difference = max(
            _in_chunks(model, slots[0], texts[0], reference),
            _beside_others(model, slots, texts, reference),
            _as_trees(model, slots[:_TREES], texts, rng),
            _after_prompts(model, slots, texts) if model.info.any_subset else 0.0,
            _as_blocks(model, slots, texts) if model.info.block_length else 0.0,
        )
    finally:
        for taken in slots:
            model.pool.give(taken)
    return "exact" if difference == 0 else f"tolerance {difference:.3g}"


def _in_chunks(model: TargetModel, blocks: list[int], text: list[int], reference: Logits) -> float:
    """Return how far the text's logits are from the reference when it comes in chunks."""
    difference = 0.0
    for chunk in _CHUNKS:
        logits = [
            model.forward([Segment(blocks, i, text[i : i + chunk], len(text[i : i + chunk]))])
            for i in range(0, len(text), chunk)
        ]
        difference = max(difference, _difference(np.concatenate(logits), reference))
    return difference


def _beside_others(
    model: TargetModel,
    slots: Sequence[list[int]],
    texts: Sequence[list[int]],
    reference: Logits,
) -> float:
    """Return how far the first text's logits are from the reference when others share the pass."""
    length = len(texts[0])
    prefix = min(_PREFIX_TOKENS, length // 2)
    difference = 0.0
    for rows in (1, 9):
        # Neighbours first prefill, then step beside the text, at other lengths than its own.
        ends = [prefix + rows * (i + 1) for i in range(len(texts))]
        for i, end in enumerate(ends):
            model.forward([Segment(slots[i], 0, texts[i][: end - rows], 1)])
        batch = [
            Segment(slots[i], end - rows, texts[i][end - rows : end], rows)
            for i, end in enumerate(ends)
            if end <= length
        ]
        beside = model.forward(batch)[:rows]
        difference = max(difference, _difference(beside, reference[ends[0] - rows : ends[0]]))
    return difference


def _as_trees(
    model: TargetModel,
    slots: Sequence[list[int]],
    texts: Sequence[list[int]],
    rng: np.random.Generator,
) -> float:
    """Return how far random trees, alone and side by side, are from their branches as paths."""
    length = len(texts[0])
    nodes = max(1, length // 4)
    trees = []
    for i, blocks in enumerate(slots):
        last = max(0, length // 2 - 1 - i)
        model.forward([Segment(blocks, 0, texts[i][: last + 1], 1)])
        parents = [int(rng.integers(ROOT, node)) for node in range(nodes)]
        rows = texts[i][last : last + 1 + nodes]
        trees.append(Segment(blocks, last, rows, 1 + nodes, parents))
    expected = np.concatenate([_by_branch(model, tree) for tree in trees])
    alone = np.concatenate([model.forward([tree]) for tree in trees])
    return max(_difference(alone, expected), _difference(model.forward(trees), expected))


def _by_branch(model: TargetModel, tree: Segment) -> Logits:
    """Return the logits of a tree's rows, each branch fed as a path: [1 + nodes, vocabulary]."""
    logits = np.empty((tree.wanted, model.info.vocab_size), np.float32)
    for leaf in set(range(len(tree.parents))).difference(tree.parents):
        rows = [0, *(1 + node for node in branch(tree.parents, leaf))]
        tokens = [tree.tokens[row] for row in rows]
        logits[rows] = model.forward([Segment(tree.blocks, tree.start, tokens, len(rows))])
    return logits


def _after_prompts(
    model: TargetModel, slots: Sequence[list[int]], texts: Sequence[list[int]]
) -> float:
    """Return how far rows are that see each other, and those after them, from one pass's."""
    blocks, text, prompt = slots[0], texts[0], len(texts[0]) // 2
    whole = Segment(blocks, 0, text, len(text), (), prompt)
    reference = model.forward([whole])
    neighbour = Segment(slots[1], 0, texts[1][: prompt // 2], 0, (), prompt // 2)
    difference = _difference(model.forward([neighbour, whole]), reference)
    for chunk in _CHUNKS:
        model.forward([Segment(blocks, 0, text[:prompt], 0, (), prompt)])
        cuts = [text[i : i + chunk] for i in range(prompt, len(text), chunk)]
        rows = [
            model.forward([Segment(blocks, prompt + i * chunk, cut, len(cut))])
            for i, cut in enumerate(cuts)
        ]
        difference = max(difference, _difference(np.concatenate(rows), reference[prompt:]))
    return difference


def _as_blocks(model: TargetModel, slots: Sequence[list[int]], texts: Sequence[list[int]]) -> float:
    """Return how far a block's rows are from one pass's where it is alone or beside others."""
    length = min(model.info.block_length, len(texts[0]) // 2)
    ends = range(length, len(texts[0]) + 1, length)
    blocks = [
        [Segment(taken, end - length, text[end - length : end], length, (), length) for end in ends]
        for taken, text in zip(slots, texts, strict=True)
    ]
    first, others = blocks[0], blocks[1:]
    reference = model.forward(first)
    alone = np.concatenate([model.forward([block]) for block in first])
    neighbours = [other[0] for other in others]
    beside = np.concatenate([model.forward([*neighbours, block])[-length:] for block in first])
    return max(_difference(alone, reference), _difference(beside, reference))


def _difference(a: Logits, b: Logits) -> float:
    """Return max |a - b|, infinite where a value is not a number."""
    if np.array_equal(a, b):
        return 0.0
    return float(np.nan_to_num(np.abs(a - b), nan=np.inf).max())


def require_exact(measured: str, *, dtype: str) -> None:
    """Raise ConfigError unless exact was measured; the message names what to change."""
    if measured != "exact":
        hint = "" if native_bf16() else "; this CPU has no native bf16 arithmetic"
        raise ConfigError(
            f"numerics: exact was asked, but with {dtype} this machine has {measured}{hint}; "
            "choose numerics: fast, or bf16 on a CPU with avx512_bf16",
            param="numerics",
        )


def native_bf16() -> bool:
    """True where the CPU has bf16 arithmetic (x86 avx512_bf16 or amx, Arm bf16)."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
