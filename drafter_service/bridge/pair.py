"""Two vocabularies side by side: what each one's tokens are in the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.vocabulary import Vocabulary

NOTHING = -1
"""What a special token is to a vocabulary that lacks it."""


class Pair:
    """The drafter's vocabulary and the target's, each with its end-of-text token.

    spelled[d] is what the target's tokenizer is to read for the drafter's token d: its bytes, of a
    special token its name where the target has it, else nothing, as for the end. first [drafter
    ids] is the target's token for it, or the first of them, or NOTHING. both counts the
    tokens that are one token in both: of the same bytes, special ones of the same name, the ends
    (the intersection of TLI, Timor et al. 2025).
    """

    def __init__(
        self, drafter: Vocabulary, drafter_eos: int, target: Vocabulary, target_eos: int, size: int
    ) -> None:
        """size is the number of the drafter's ids, those that no token has included."""
        self.drafter, self.target = drafter, target
        self.drafter_eos, self.target_eos = drafter_eos, target_eos
        self.spelled = [*drafter.spelling, *[b""] * (size - len(drafter.spelling))]
        for name, id_ in drafter.specials.items():
            if name not in target.specials:
                self.spelled[id_] = b""
        self.spelled[drafter_eos] = b""
        self.first = np.full(len(self.spelled), NOTHING, dtype=np.int64)
        self.first[drafter_eos] = target_eos
        self.both = 1
        for id_, data in enumerate(self.spelled):
            if tokens := self._written(data):
                self.first[id_] = tokens[0]
                self.both += len(tokens) == 1
        self._heard = list(target.spelling)
        for name, id_ in target.specials.items():
            self._heard[id_] = name.encode() if name in drafter.specials else b""
        self._heard[target_eos] = drafter.spelling[drafter_eos]

    def goes_on(self, tokens: Sequence[int], begun: bytes) -> list[bool]:
        """Return which of the drafter's tokens begin with begun and say more."""
        spelled = [self.spelled[token] for token in tokens]
        return [data.startswith(begun) and len(data) > len(begun) for data in spelled]

    def first_after(self, tokens: Sequence[int], begun: bytes) -> list[int]:
        """Return `first` of the drafter's tokens where the text has their beginning already.

        Tokens that do not go on from there are NOTHING.
        """
        found = []
        for token, longer in zip(tokens, self.goes_on(tokens, begun), strict=True):
            rest = self._written(self.spelled[token][len(begun) :]) if longer else []
            found.append(rest[0] if rest else NOTHING)
            if token == self.drafter_eos:
                found[-1] = self.target_eos
        return found

    def _written(self, data: bytes) -> list[int]:
        """Return data in the target's tokens: the one that has these bytes, if any has."""
        one = self.target.ids.get(data)
        return self.target.write(data) if one is None else [one]

    def bytes_of(self, tokens: Sequence[int]) -> bytes:
        """Return what the drafter's tokenizer is to read for the target's tokens.

        A special token that the drafter lacks is nothing to it.
        """
        size = len(self._heard)
        return b"".join(self._heard[token] for token in tokens if token < size)
