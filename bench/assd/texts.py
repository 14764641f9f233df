"""Held-out texts with a random share of their tokens masked (Sec. 6 of the ASSD paper)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from foredraft.layout import Layout
from foredraft_cli.prompts.held_out import rows, spread


class Masked(NamedTuple):
    """A text with holes: its module, its layout, what is given, and a seed."""

    module: str
    layout: Layout
    given: tuple[int, ...]
    seed: int


def masked_texts(
    tokenizer: Tokenizer, count: int, length: int, share: float, development: bool = False
) -> list[Masked]:
    """Return `count` held-out texts of `length` tokens, of each the share masked at random.

    Texts of DEVELOPMENT's modules are for choosing settings, the others for reports. Where count is
    more than there are, they come again with other masks and seeds.
    """
    found = []
    for row in rows(development):
        tokens = tokenizer.encode(row["text"], add_special_tokens=False).ids
        if len(tokens) >= length:
            found.append((row["module"], tokens[:length]))
    texts = islice(cycle(spread(found, count)), count)
    return [_masked(module, tokens, share, seed) for seed, (module, tokens) in enumerate(texts)]


def _masked(module: str, tokens: Sequence[int], share: float, seed: int) -> Masked:
    length = len(tokens)
    given = max(1, round(length * (1 - share)))
    chosen = np.sort(np.random.default_rng(seed).choice(length, given, replace=False)).tolist()
    return Masked(module, Layout(length, tuple(chosen)), tuple(tokens[at] for at in chosen), seed)
