"""The ways of filling a text that are compared: served ones, and the paper's as printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bench.assd.algorithm_1 import KeyedChance, rejection
from bench.assd.bigram import Bigrams
from bench.assd.paged import PagedJoint
from bench.assd.port import Decoded, sequential
from bench.assd.rounds import decide
from bench.assd.texts import Masked
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from verifier_service.models.compiled.sampling import best_choice
from verifier_service.targets.engine import VerifierEngine


class Filled(NamedTuple):
    """A filled text, in order space, and what it took."""

    decoded: Decoded
    seconds: float


Fill = Callable[[Masked, SamplingParams], Decoded]


@dataclass(frozen=True, slots=True)
class Way:
    """A way of filling; its time is compared with that of the way `beside`, which drafts nothing.

    exact is true where its texts are those of sequential decoding, token for token.
    """

    name: str
    k: int
    fill: Fill
    beside: str
    exact: bool = True

    def timed(self, text: Masked, temperature: float) -> Filled:
        """Fill a text."""
        began = time.perf_counter()
        found = self.fill(text, SamplingParams(temperature, seed=text.seed))
        return Filled(found, time.perf_counter() - began)


SERVED, PRINTED = "served, plain", "printed, sequential"


def ways(
    engine: VerifierEngine, length: int, lengths: tuple[int, ...], trees: tuple[int, ...] = ()
) -> list[Way]:
    """Return the ways over an any-subset engine, for texts of `length` tokens and drafts of
    `lengths` tokens; of the served way, which drafts trees, also of more.
    """
    assert engine.info.mask_token_id is not None
    joint = PagedJoint(engine.model, length, engine.info.mask_token_id)
    bigrams = Bigrams(engine.info.vocab_size)
    choice = best_choice()

    def by_itself(k: int) -> Fill:
        return lambda text, sampling: served(engine, text, sampling, k)

    def in_order(text: Masked, sampling: SamplingParams) -> Decoded:
        joint.forget()
        return sequential(joint, text.layout, text.given, sampling, choice)

    def printed(k: int, drafts: Bigrams | None) -> Fill:
        def fill(text: Masked, sampling: SamplingParams) -> Decoded:
            joint.forget()
            chance = KeyedChance(text.seed)
            return rejection(joint, text.layout, text.given, sampling, k, chance, drafts)

        return fill

    found = [Way(SERVED, 0, by_itself(0), SERVED), Way(PRINTED, 0, in_order, PRINTED)]
    for k in lengths:
        found += [
            Way("served, self", k, by_itself(k), SERVED),
            Way("Algorithm 1, self", k, printed(k, None), PRINTED, exact=False),
            Way("Algorithm 1, bigrams", k, printed(k, bigrams), PRINTED, exact=False),
        ]
    return found + [Way("served, self", k, by_itself(k), SERVED) for k in trees]


def served(engine: VerifierEngine, text: Masked, sampling: SamplingParams, k: int) -> Decoded:
    """Fill a text by plain rounds of a session, in which the target drafts k tokens itself."""
    given, length = len(text.given), text.layout.length
    request = VerifyOpen(
        "bench", text.given, sampling, length - given, 0, layout=text.layout, self_draft=k
    )
    handle, tokens, passes = engine.open(request), list(text.given), 0
    while len(tokens) < length:
        steps = min(MAX_PLAIN_STEPS, length - len(tokens))
        verdict = decide(engine, handle, "bench", tokens, steps)
        tokens += verdict.next_tokens
        passes += verdict.timings.passes
    engine.close(handle)
    return Decoded(tuple(tokens[given:]), passes, passes)
