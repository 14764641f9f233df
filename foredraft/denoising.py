"""Records of a block-diffusion target: what is asked of a denoiser, and what it answers.

A text's blocks of L tokens are denoised one after the other. The state of a block, and how a step
leads to the next one, are functions of the text before it, the rule and the seed, so that any
replica comes to the same states (docs/diffusion.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.decoding.block_state import State
from foredraft.types import Base, SamplingParams, Timings


@dataclass(frozen=True, slots=True)
class Static:
    """The `per_step` most confident slots are filled in each step: S, at least 1."""

    per_step: int = 1

    def __post_init__(self) -> None:
        if self.per_step < 1:
            raise ValueError(f"per_step: {self.per_step} is below 1")


@dataclass(frozen=True, slots=True)
class Dynamic:
    """All slots above `threshold` (tau, in [0, 1)) are filled, and always the most confident one.

    Fast-dLLM's rule (Wu et al., 2025).
    """

    threshold: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold: {self.threshold} is not in [0, 1)")


Unmasking = Static | Dynamic


@dataclass(frozen=True, slots=True)
class DenoiseOpen:
    """Opens a session on a denoiser and reserves KV for whole blocks of prefix + max_new_tokens.

    The prefix is the prompt and, after a move, the blocks committed since. Of sampling only the
    temperature and the seed may be set. A call evaluates at most max_drafts drafted states (D*)
    beside the current one. The text ends with the first of stop_token_ids. Sessions share KV only
    with sessions of the same cache_salt; groups are whom the session counts for.
    """

    session_id: str
    prefix: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    unmasking: Unmasking
    max_drafts: int = 0
    stop_token_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """Asks for at most `calls` model calls from a state on.

    base.prefix_len is the first position of the block, base.prefix_hash the state's (hash_state).
    """

    base: Base
    calls: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """What came of an Advance: whole blocks since its base, and the state of the block after them.

    The block is empty where the text has ended. `steps` led there in so many calls; each step
    beyond the calls was a draft that was accepted.
    """

    base: Base
    committed: tuple[int, ...]
    block: State
    steps: int
    accepted: int
    calls: int
    timings: Timings
