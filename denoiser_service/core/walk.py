"""Verification as a walk through evaluated states: Spiffy's Alg. 1, step 5, without its recursion.

A draft is accepted when the walk comes to a state equal to it. Who its parents are, how many levels
a step skips and how many tokens it fills come out by themselves; a wrong, repeated or hostile draft
is a state that the walk never comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from denoiser_service.core.draws import Logits
from denoiser_service.core.next import Next, Rule, next_state
from denoiser_service.core.port import Guess
from foredraft.decoding.block_state import MASKED, State, extends, is_full


@dataclass(frozen=True, slots=True)
class Walk:
    """The states that the walk came to, in order, the logits that each step used, and what the last
    step led to.
    """

    states: tuple[State, ...]
    logits: tuple[Logits, ...]
    last: Next


def walk(state: State, known: Mapping[State, Logits], rule: Rule, start: int) -> Walk:
    """Return the steps from a state on for as long as the state they lead to is known.

    At least one: raise KeyError where the first state is not known. `start` is the block's first
    position in the text.
    """
    logits = [known[state]]
    last = next_state(state, logits[-1], rule, start)
    states = [last.state]
    while not is_full(last.state) and last.state in known:
        logits.append(known[last.state])
        last = next_state(last.state, logits[-1], rule, start)
        states.append(last.state)
    return Walk(tuple(states), tuple(logits), last)


def worth_evaluating(
    state: State,
    drafts: Iterable[Guess],
    vocab: int,
    goes_on: Callable[[State], bool] = lambda full: False,
) -> list[Guess]:
    """Return the drafts that a walk from a state can come to, each state once, in order.

    Others would cost a place in the call for nothing, or name tokens that the model does not have.
    Full ones are such where the text goes on after them.
    """
    found: dict[State, Guess] = {}
    for guess in drafts:
        draft = guess.state
        reached = draft != state and extends(draft, state)
        known_tokens = reached and min(draft) >= MASKED and max(draft) < vocab
        if known_tokens and (not is_full(draft) or goes_on(draft)):
            found.setdefault(draft, guess)
    return list(found.values())
