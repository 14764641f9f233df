"""The committed prefix of a session, and the hash chain that names it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.decoding.prefix import extend_hash, hash_prefix
from foredraft.types import Base


class CommittedPrefix:
    """Prompt and generated tokens, append-only, and the hash of each prefix from the prompt on."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens = list(prompt)
        self.prompt_len = len(self.tokens)
        self._hashes = [hash_prefix(prompt)]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def hash(self) -> int:
        """The chained hash of the whole prefix."""
        return self._hashes[-1]

    @property
    def generated(self) -> tuple[int, ...]:
        """The tokens after the prompt."""
        return tuple(self.tokens[self.prompt_len :])

    def base(self, session_id: str, number: int) -> Base:
        """Return the prefix as the base of round `number`."""
        return Base(session_id, number, len(self.tokens), self.hash)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens for good."""
        for token in tokens:
            self._hashes.append(extend_hash(self._hashes[-1], (token,)))
        self.tokens.extend(tokens)

    def starts_with(self, base: Base) -> bool:
        """Return whether base names this prefix or one that it grew from, down to the prompt."""
        at = base.prefix_len - self.prompt_len
        return 0 <= at < len(self._hashes) and self._hashes[at] == base.prefix_hash
