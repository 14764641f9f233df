"""Drafts from a text's own bigrams ("Reviving Any-Subset Autoregressive Models", Alg. 2). Pure.

The printed c(a given b) (Eq. 23) is no distribution: b is also counted where a mask follows it, and
an unseen b gives 0/0. Here counts are of known pairs, and a part of the mass goes to unigrams and
to the uniform law, so that every token has a probability; drafting and verification use that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.assd.algorithm_1 import Pick
from foredraft.layout import Layout
from foredraft.types import SamplingParams
from verifier_service.rules.rejection import Floats

_UNIGRAMS = 1.0
_UNIFORM = 1.0
"""Weights, in occurrences, of unigrams against bigrams, and of the uniform law against unigrams."""


class Bigrams:
    """Drafts a token by the one at the position before it. Its tokens are as likely at every
    temperature.
    """

    certain = False

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def draft(
        self, layout: Layout, text: Sequence[int], count: int, sampling: SamplingParams, pick: Pick
    ) -> tuple[list[int], Floats]:
        """Return `count` tokens and their laws [count, vocabulary]."""
        known = dict(zip(layout.positions, text, strict=False))
        tokens, laws = [], []
        for order in range(len(text), len(text) + count):
            position = layout.positions[order]
            laws.append(self._law(known, position))
            # In Eq. 4's order all positions before one are known or drafted by then.
            known[position] = pick(order, laws[-1])
            tokens.append(known[position])
        return tokens, np.array(laws)

    def _law(self, known: dict[int, int], position: int) -> Floats:
        """Return the law of the token at a position [vocabulary]."""
        unigrams = np.bincount(list(known.values()), minlength=self.vocabulary).astype(np.float64)
        law: Floats = (unigrams + _UNIFORM / self.vocabulary) / (unigrams.sum() + _UNIFORM)
        before = known.get(position - 1)
        after = [
            known[at + 1] for at, token in known.items() if token == before and at + 1 in known
        ]
        bigrams = np.bincount(after, minlength=self.vocabulary)
        return (bigrams + _UNIGRAMS * law) / (len(after) + _UNIGRAMS)
