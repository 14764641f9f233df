"""A drafter whose drafts are as right as an acceptance model has them; its passes take time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate

import numpy as np

from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.proposals.denoising import Pass, Passes
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import NO_GUESS, Drafted
from foredraft.pacing.config import Work
from foredraft.types import Guess
from foredraft_simulator.acceptance.drawn import Acceptance, DrawnDraft
from foredraft_simulator.models.texts import INFO, MAX_LEN, generated, right, wrong
from foredraft_simulator.scenario.pools import DrafterPoolConfig

_NO_SCORES = BlockScores(np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1)))


def capabilities(slots: int, cache_slots: int, branch_slots: int) -> Capabilities:
    """Return what the simulated model can do."""
    return Capabilities(
        INFO.name,
        INFO.vocab_size,
        MAX_LEN,
        INFO.vocab_size - 1,
        slots,
        "exact",
        cache_slots,
        MAX_LEN + slots,
        branch_slots=branch_slots,
    )


class SimulatedDrafter:
    """A DiffusionLM; spend(seconds) makes a pass last, pass_s is how long."""

    def __init__(
        self,
        capabilities: Capabilities,
        pass_s: Callable[[Work], float],
        spend: Callable[[float], None],
    ) -> None:
        self.capabilities = capabilities
        self._pass_s, self._spend = pass_s, spend

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return no scores of meaning: what is drafted is the strategy's to know."""
        rows = sum(len(request.tokens) + request.num_slots for request in requests)
        # Blocks after one prefix, for several outcomes, read it once.
        context = sum(request.start for request in requests if request.prefix_slot is None)
        self._spend(self._pass_s(Work(rows, context, len(requests))))
        return [_NO_SCORES] * len(requests)


class SimulatedStrategy:
    """One session's drafts, after a prompt of so many tokens; drafted(tokens) counts them."""

    def __init__(
        self,
        request: int,
        prompt_len: int,
        acceptance: Acceptance,
        config: DrafterPoolConfig,
        num_guesses: int,
        drafted: Callable[[int], None],
    ) -> None:
        self._request, self._prompt_len = request, prompt_len
        self._acceptance, self._config = acceptance, config
        self._num_guesses, self._drafted = num_guesses, drafted
        self.max_draft_tokens = config.max_draft_tokens

    def draft(self, num_tokens: int, context: Sequence[int], room: int) -> Passes[Drafted]:
        """Return a block of up to num_tokens tokens, after some passes."""
        for _ in range(self._config.passes):
            yield Pass(context, min(self._config.slots, room))
        count = min(num_tokens, self.max_draft_tokens, room)
        position = len(context)
        self._drafted(count)
        if context[self._prompt_len :] != generated(self._prompt_len, position):
            # After an outcome that is not to come: nothing of the draft will be used.
            return _useless(count)
        drawn = self._acceptance.draft(self._request, position - self._prompt_len, count)
        block = block_of(drawn, position)
        return replace(block, guesses=self._guesses(drawn, position))

    def _guesses(self, drawn: DrawnDraft, position: int) -> tuple[Guess, ...]:
        """Return the likeliest ways in which the round may end, likeliest first."""
        depths = [0, *accumulate(drawn.kept)]
        order = sorted(range(len(drawn.last)), key=lambda at: -drawn.last[at])
        rate = self._acceptance.guess_rate
        guesses = []
        for at in order[: self._num_guesses]:
            after = position + depths[at]
            known = self._acceptance.guessed(self._request, after - self._prompt_len)
            token = right(after) if known else wrong(len(drawn.kept))
            guesses.append(Guess(at - 1, token, rate * drawn.last[at]))
        return tuple(guesses)


def block_of(drawn: DrawnDraft, position: int) -> Drafted:
    """Return a drawn draft after `position` tokens, as a path or a tree.

    A wrong node of a tree hangs below the last kept node before it.
    """
    tokens: list[int] = []
    parents: list[int] = []
    last = -1
    for node, kept in enumerate(drawn.kept):
        tokens.append(right(position) if kept else wrong(node))
        parents.append(last)
        if kept:
            last, position = node, position + 1
    return Drafted(
        tokens=tuple(tokens),
        generated_len=len(tokens),
        bonus_guess=NO_GUESS,
        parents=() if drawn.path else tuple(parents),
        expected=tuple(drawn.expected),
    )


@cache
def _useless(count: int) -> Drafted:
    tokens = tuple(map(wrong, range(count)))
    return Drafted(tokens, count, NO_GUESS, expected=(0.0,) * count)
