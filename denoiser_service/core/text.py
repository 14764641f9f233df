"""What is asked of a denoiser, and what came of it, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from denoiser_service.core.draws import Logits
from denoiser_service.core.walk import Walk
from foredraft.decoding.block_state import State


@dataclass(frozen=True, slots=True)
class Text:
    """At most `max_tokens` after the prompt, none after the first of `stops`, which is kept."""

    prompt: tuple[int, ...]
    max_tokens: int
    stops: frozenset[int] = frozenset()

    def new(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return what is wanted of the tokens after the prompt."""
        after = tokens[len(self.prompt) : len(self.prompt) + self.max_tokens]
        end = next((i for i, token in enumerate(after) if token in self.stops), len(after))
        return tuple(after[: end + 1])

    def is_done(self, tokens: Sequence[int]) -> bool:
        """Return whether more tokens would change nothing."""
        new = self.new(tokens)
        return len(new) == self.max_tokens or (bool(new) and new[-1] in self.stops)


@dataclass(frozen=True, slots=True)
class Block:
    """A denoised block: its first position in the text, its first state, a walk for each call."""

    start: int
    opened: State
    walks: tuple[Walk, ...]

    @property
    def states(self) -> tuple[State, ...]:
        """All states, from the first to the full one."""
        return (self.opened, *(state for each in self.walks for state in each.states))

    @property
    def logits(self) -> tuple[Logits, ...]:
        """What each state but the full one was evaluated to."""
        return tuple(logits for each in self.walks for logits in each.logits)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text's new tokens and the blocks that they are from."""

    tokens: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def steps(self) -> int:
        """How often a state was left for the next one."""
        return sum(len(block.logits) for block in self.blocks)

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return sum(len(block.walks) for block in self.blocks)
