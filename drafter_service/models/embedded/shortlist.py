"""What a drafter with a shortlist reads beside its own weights: the list, and its target's rows."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from drafter_service.models.weights import read_embedding
from foredraft.errors import ConfigError


def checked_shortlist(stored: Tensor | None, size: int, vocab_size: int, eos: int) -> Tensor:
    """Return a stored shortlist as int64 [size].

    Raise ValueError unless it is `size` different tokens of the vocabulary, EOS among them.
    """
    if stored is None or stored.shape != (size,):
        raise ValueError(f"token_ids must be a shortlist of {size} tokens")
    listed = stored.long()
    if not 0 <= listed.min() <= listed.max() < vocab_size or len(listed.unique()) < size:
        raise ValueError("token_ids must be tokens of the vocabulary, each of them once")
    if eos not in listed.tolist():
        raise ValueError("token_ids must have the end token")
    return listed


def rows_of_target(target: Path | None, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the target's embedding and head, each of `shape` [vocab, hidden].

    Raise ConfigError where there is no target or it is of another shape, else as read_embedding.
    """
    if target is None:
        raise ConfigError("a drafter with a shortlist needs its target's folder", param="target")
    embedding, head = read_embedding(target, "cpu")
    for weight in (embedding, head):
        if weight.shape != shape:
            raise ConfigError(
                f"the drafter is for a target of {list(shape)}; {target.name} has "
                f"{list(weight.shape)}",
                param="target",
            )
    return embedding, head
