"""A block's state while it is denoised: each of its L slots holds a token or the mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foredraft.decoding.prefix import extend_hash

State = tuple[int, ...]
"""The token of each slot, MASKED where it has none; two states are one if they are equal."""

MASKED = -1

# Above every token id, so that no prefix of tokens has the hash of a state.
_BLOCK_TAG = 1 << 32


def opened(given: Iterable[int], block_length: int) -> State:
    """Return the state of a block whose first slots are given, the others masked.

    Raise ValueError where more is given than the block has slots.
    """
    filled = tuple(given)
    if len(filled) > block_length:
        raise ValueError(f"given: {len(filled)} tokens for a block of {block_length} slots")
    return filled + (MASKED,) * (block_length - len(filled))


def masked_slots(state: State) -> list[int]:
    """Return the slots without a token, in ascending order."""
    return [slot for slot, token in enumerate(state) if token == MASKED]


def num_filled(state: State) -> int:
    """Return how many slots hold a token: c, by which a step's noise is keyed."""
    return len(state) - state.count(MASKED)


def is_full(state: State) -> bool:
    """Return whether no slot is masked."""
    return MASKED not in state


def fill(state: State, tokens: Mapping[int, int]) -> State:
    """Return the state with tokens in these slots; raise ValueError where one is filled already."""
    for slot in tokens:
        if state[slot] != MASKED:
            raise ValueError(f"slot {slot} is filled already")
    return tuple(tokens.get(slot, token) for slot, token in enumerate(state))


def extends(later: State, earlier: State) -> bool:
    """Return whether all that is filled in `earlier` is so in `later`, with the same tokens."""
    if len(later) != len(earlier):
        return False
    # A loop: a generator takes twice as long, and drafts are compared before every call.
    for before, after in zip(earlier, later, strict=True):  # noqa: SIM110
        if before not in (after, MASKED):
            return False
    return True


def hash_state(prefix_hash: int, block: int, state: State) -> int:
    """Return the 64-bit hash that names a state: of the prefix, the block's number, what is filled.

    Slots and tokens go in as pairs, by slot, so that equal tokens in other slots differ.
    """
    filled = [part for pair in enumerate(state) if pair[1] != MASKED for part in pair]
    return extend_hash(prefix_hash, [_BLOCK_TAG + block, *filled])
