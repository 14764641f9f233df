"""A session's way of drafting: which passes it asks for and what it makes of them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from drafter_service.proposals.denoising import Denoiser, Pass, Passes, least_confidence
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import NO_GUESS, Drafted, copied_path
from foredraft.ngram.lookup import continuation
from foredraft.types import Candidates, Guess, SamplingParams

Draw = Callable[[BlockScores, int, Sequence[int], int], Drafted]
"""draw(scores, num_tokens, text, prefix_len): a block over scores' slots, which follow text.

text is the context, of prefix_len tokens, and what was drafted after it.
"""


class Strategy(Protocol):
    """Drafts one session's blocks, each from the context that it is given."""

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens of a block."""

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return a block of up to num_tokens tokens, none if there is nothing to propose.

        room, at least 1, is how many more tokens and slots the model can hold behind the context.
        """


class Diffusion:
    """One block of mask slots, denoised and drawn from (DiffuSpec Sec. 4.1).

    A path has a slot for each token, the nodes of a tree, max_nodes at most, share the slots;
    max_nodes is 0 for a path. guess_slots, 0 or 1, is one more for the guesses of what follows all
    of it.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        draw: Draw,
        max_slots: int,
        max_nodes: int = 0,
        guess_slots: int = 1,
    ) -> None:
        self._denoiser, self._draw, self._max_slots = denoiser, draw, max_slots
        self._guess_slots = guess_slots
        self.max_draft_tokens = max_nodes or max_slots - 1

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return the block drawn; near the model's longest sequence it is shorter."""
        count = min(num_tokens, self.max_draft_tokens, room)
        slots = min(count + self._guess_slots, self._max_slots, room)
        scores = yield from self._denoiser.denoise(context, slots)
        return self._draw(scores, count, context, len(context))


@dataclass(frozen=True, slots=True)
class ExtendParams:
    """How a path grows: by `block` tokens while each has `confidence`, up to max_tokens in all."""

    block: int
    confidence: float
    max_tokens: int


class Extended:
    """Short blocks, one behind the other while all of the last one's tokens are confident.

    FailFast (arXiv 2512.20573): fail fast where the text is hard, run far where it is easy. Tokens
    drafted before are text to the next block. sampling gives the confidence (log_odds). Whether a
    token is drafted depends on the tokens before it alone, so the rules that draw from q stay
    exact.
    """

    def __init__(
        self, denoiser: Denoiser, draw: Draw, sampling: SamplingParams, params: ExtendParams
    ) -> None:
        self._denoiser, self._draw = denoiser, draw
        self._sampling, self._params = sampling, params
        self.max_draft_tokens = params.max_tokens

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return the blocks as one; num_tokens bounds them all together."""
        whole = Drafted((), 0, NO_GUESS)
        text = context
        left = min(num_tokens, self.max_draft_tokens)
        while left:
            count = min(left, self._params.block)
            slots = min(count + 1, room - len(whole.tokens))
            scores = yield from self._denoiser.denoise(text, slots)
            block = self._draw(scores, count, text, len(context))
            confidence = least_confidence(scores, block.tokens, self._sampling, len(text))
            whole = replace(
                block,
                tokens=whole.tokens + block.tokens,
                generated_len=whole.generated_len + block.generated_len,
                q=whole.q + block.q,
                expected=_joined(whole.expected, block.expected),
                guesses=_behind(len(whole.tokens), whole.expected, block.guesses),
            )
            # No guess: the block reached its end or the model's.
            if block.bonus_guess == NO_GUESS or confidence < self._params.confidence:
                break
            text = [*text, *block.tokens]
            left -= count
        return whole


def _joined(whole: tuple[float, ...], block: tuple[float, ...]) -> tuple[float, ...]:
    """Return the estimates of a path and of the block behind it."""
    before = whole[-1] if whole else 1.0
    return (*whole, *(before * each for each in block))


def _behind(
    length: int, expected: tuple[float, ...], guesses: tuple[Guess, ...]
) -> tuple[Guess, ...]:
    """Return a block's guesses as those of a path whose last block it is."""
    before = expected[-1] if expected else 1.0
    return tuple(Guess(length + node, token, before * p) for node, token, p in guesses)


class Autoregressive:
    """One mask slot and one pass for each token, which is text to the next (Leviathan et al. 2023).

    What SPS does with a small autoregressive model, done with the diffusion model: the baseline of
    one pass for each token. draw makes a path's one token, of candidates for sampling.
    """

    def __init__(
        self, draw: Draw, sampling: SamplingParams, eos: int, max_draft_tokens: int
    ) -> None:
        self._draw, self._sampling, self._eos = draw, sampling, eos
        self.max_draft_tokens = max_draft_tokens

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return the tokens; there is no guess, which would take one more pass."""
        text = list(context)
        q: tuple[Candidates, ...] = ()
        for _ in range(min(num_tokens, self.max_draft_tokens, room)):
            scores = yield Pass(text, 1, (), self._sampling)
            step = self._draw(scores, 1, text, len(context))
            text += step.tokens
            q += step.q
            if text[-1] == self._eos:
                break
        return replace(copied_path(text[len(context) :], num_tokens, self._eos), q=q)


class Lookup:
    """Copies what followed the longest earlier match of the text's end (prompt lookup decoding).

    shortest is the least length of a match, in tokens, that is trusted. Needs no pass.
    """

    def __init__(self, eos: int, shortest: int, max_draft_tokens: int) -> None:
        self._eos, self._shortest = eos, shortest
        self.max_draft_tokens = max_draft_tokens

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return the copied block, empty if there is no match."""
        yield from ()
        count = min(num_tokens, self.max_draft_tokens, room)
        found = continuation(context, count + 1, self._shortest)
        return copied_path(found, count, self._eos)


class Warmup:
    """Another strategy for the text's beginning: SpecDiff's sequence initialisation (Table 4).

    `first` drafts every block that begins before position `until`, `then` all others.
    """

    def __init__(self, first: Strategy, then: Strategy, until: int) -> None:
        self._first, self._then, self._until = first, then, until
        # Each keeps to its own.
        self.max_draft_tokens = max(first.max_draft_tokens, then.max_draft_tokens)

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return the block of the strategy whose turn it is."""
        strategy = self._first if len(context) < self._until else self._then
        return strategy.draft(num_tokens, context, room)
