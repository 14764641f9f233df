"""Any-Subset Speculative Decoding as printed (Algorithm 1), with min(1, q/p). Pure.

The paper's p is the draft and its q the oracle, the reverse of the rules' names; here p is the
target's law and q the draft's, as in rules/rejection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from bench.assd.port import Decoded, JointModel, Logits, chain, star
from foredraft.layout import Layout
from foredraft.noise.streams import ACCEPT, DRAFT, RESIDUAL, substream, uniform
from foredraft.types import SamplingParams
from verifier_service.rules.rejection import Floats
from verifier_service.rules.sampling import RowSampling, probabilities, process

Pick = Callable[[int, Floats], int]
"""Draws a token for an order index, in proportion to weights [vocabulary]."""


class Chance(Protocol):
    """The random numbers of a decoding, each used once. n is the length of a round's prefix."""

    def token(self, purpose: int, n: int, order: int, weights: Floats) -> int:
        """Return a token drawn in proportion to weights [vocabulary]; purpose DRAFT or RESIDUAL."""

    def passes(self, n: int, order: int, odds: float) -> bool:
        """Return True with probability odds."""


@dataclass(frozen=True, slots=True)
class KeyedChance:
    """Random numbers as functions of a seed, independent of the noise that `coupled` shares."""

    seed: int

    def token(self, purpose: int, n: int, order: int, weights: Floats) -> int:
        """Return where the uniform number of purpose, n and the order index falls."""
        mass = np.cumsum(weights)
        share = uniform(substream(self.seed, purpose, n), order)
        return int(np.searchsorted(mass, share * mass[-1]))

    def passes(self, n: int, order: int, odds: float) -> bool:
        """Return whether the uniform number of n and the order index is at most odds."""
        return uniform(substream(self.seed, ACCEPT, n), order) <= odds


class Drafts(Protocol):
    """Where a round's draft comes from.

    certain is true where its first token has the target's own law (Lemma 1).
    """

    certain: bool

    def draft(
        self, layout: Layout, text: Sequence[int], count: int, sampling: SamplingParams, pick: Pick
    ) -> tuple[list[int], Floats]:
        """Return `count` tokens after a text in order space, and what each was drawn from:
        [count, vocabulary].
        """


@dataclass(frozen=True, slots=True)
class SelfDrafts:
    """Drafts of the target itself: a star of query rows, one forward pass."""

    model: JointModel
    certain = True

    def draft(
        self, layout: Layout, text: Sequence[int], count: int, sampling: SamplingParams, pick: Pick
    ) -> tuple[list[int], Floats]:
        """Return a draw of each row of the star."""
        queries = star(len(text), count, len(text))
        q = law(self.model.logits(layout, text, queries), sampling)
        return [pick(query.order, row) for query, row in zip(queries, q, strict=True)], q


def rejection(
    model: JointModel,
    layout: Layout,
    prompt: Sequence[int],
    sampling: SamplingParams,
    k: int,
    chance: Chance,
    drafts: Drafts | None = None,
) -> Decoded:
    """Return x_sigma(>=m), whose law is that of sequential decoding, with drafts of k tokens.

    drafts are the target's own by default. Where a draft's first token is certain, its row is not
    asked for again, and the last token of a text is drafted and done (l. 9-12); there are then no
    more calls than tokens for k >= 2 (Theorem 1, which does not hold for k = 1). Other drafts are
    verified whole, the last token of a text too: as printed it would be kept unverified. No bonus
    follows a draft that is accepted.
    """
    drafts = drafts or SelfDrafts(model)
    text = list(prompt)
    calls = drafted_calls = rounds = 0
    while (n := len(text)) < layout.length:
        count = min(k, layout.length - n)
        draft, q = drafts.draft(layout, text, count, sampling, partial(chance.token, DRAFT, n))
        rounds += 1
        drafted_calls += 1 if drafts.certain else count
        first = n + drafts.certain
        text += draft[: first - n]
        if len(text) == layout.length:
            break
        draft, q = draft[first - n :], q[first - n :]
        logits = model.logits(layout, [*text, *draft[:-1]], chain(first, len(draft)))
        calls += 1
        laws = (law(row[None], sampling)[0] for row in logits)
        text += accepted(laws, draft, q, n, first, chance)
    generated = tuple(text[len(prompt) :])
    if drafts.certain:
        return Decoded(generated, calls + drafted_calls, rounds)
    return Decoded(generated, calls, rounds, drafted_calls)


def accepted(
    p: Iterable[Floats], draft: Sequence[int], q: Floats, n: int, first: int, chance: Chance
) -> list[int]:
    """Return the tokens that a draft from order `first` on adds (l. 17-25): those before the first
    refusal, and one drawn from (p - q)+ in its place.

    p and q [draft, vocabulary] are the laws of each token given the drafted ones before it, and
    what it was drafted from, in the round after a prefix of n tokens. After a refusal no row of p
    is read.
    """
    for kept, (token, target, drafted) in enumerate(zip(draft, p, q, strict=True)):
        if not chance.passes(n, first + kept, odds(target, drafted, token)):
            weights = residual(target, drafted)
            return [*draft[:kept], chance.token(RESIDUAL, n, first + kept, weights)]
    return list(draft)


def odds(p: Floats, q: Floats, token: int) -> float:
    """Return min(1, p / q) of a token (l. 19); rules/rejection.py has it for a q of few tokens."""
    return min(1.0, float(p[token] / q[token]))


def residual(p: Floats, q: Floats) -> Floats:
    """Return (p - q)+ [vocabulary], not normalised (l. 22); p where rounding alone refused."""
    left: Floats = np.maximum(0.0, p - q)
    return left if left.any() else p


def law(logits: Logits, sampling: SamplingParams) -> Floats:
    """Return the processed distribution of each row [rows, vocabulary]; one-hot at temperature 0.

    Raise ValueError where a row is not finite.
    """
    if not np.isfinite(logits.max(axis=-1)).all():
        raise ValueError("the model's logits are not finite")
    if not len(logits):
        return logits.astype(np.float64)
    if sampling.temperature == 0:
        one_hot: Floats = np.zeros(logits.shape)
        np.put_along_axis(one_hot, logits.argmax(axis=-1)[..., None], 1.0, axis=-1)
        return one_hot
    return probabilities(process(logits, [RowSampling(sampling, 0)] * len(logits)))
