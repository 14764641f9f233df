"""Logits processors: penalties, bias, bans and grammar, before the temperature. Pure, by row.

Every row is changed by its own prefix alone: the text so far and, in a draft, the branch that leads
to the row. So each position of a draft has the distribution that plain decoding has there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foredraft.types import LogitsParams

Row = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
# Changes the logits of the token after text + branch, in place.
Change = Callable[[Row, Sequence[int]], None]


class GrammarMatcher(Protocol):
    """The tokens that a grammar allows after one session's generated tokens.

    seconds is what the last call of `allowed` took.
    """

    seconds: float

    def extend(self, token: int) -> None:
        """Append a generated token."""

    def allowed(self, branches: Sequence[Sequence[int]]) -> Sequence[Mask]:
        """Return which tokens may follow text + branch [vocabulary], for at least the first branch.

        Raise InvalidRequest where that cannot be checked on the text itself.
        """


class LogitsProcessors:
    """The processors of one session, whose tokens grow by `extend`.

    The order is vLLM's: allowed tokens, min_tokens, logit_bias, then the repetition, frequency and
    presence penalties; and last the grammar, if there is a matcher.
    """

    def __init__(
        self,
        params: LogitsParams,
        stops: frozenset[int],
        vocab_size: int,
        text: Sequence[int],
        matcher: GrammarMatcher | None = None,
    ) -> None:
        self._params = params
        self._guide = matcher
        self._length = 0
        self._stops = np.array(sorted(stops), dtype=np.intp)
        self._barred = _others(params.allowed_token_ids, vocab_size)
        self._biased = np.array([token for token, _ in params.logit_bias], dtype=np.intp)
        self._biases = np.array([bias for _, bias in params.logit_bias], dtype=np.float32)
        self._changes = [change for change, used in self._all() if used]
        # Most sessions change nothing and need no memory for it.
        size = 0 if self.idle else vocab_size
        self._generated = np.zeros(size, dtype=np.float32)
        self._seen = np.zeros(size, dtype=np.bool_)
        self.extend(text)

    @property
    def idle(self) -> bool:
        """Whether no row is ever changed."""
        return not (self._changes or self._guide)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append committed tokens."""
        for token in () if self.idle else tokens:
            self._seen[token] = True
            if self._length >= self._params.prompt_len:
                self._generated[token] += 1
                if self._guide is not None:
                    self._guide.extend(token)
            self._length += 1

    @property
    def seconds(self) -> float:
        """Time of the last rows' masks, in seconds."""
        return 0.0 if self._guide is None else self._guide.seconds

    def apply(self, logits: npt.NDArray[np.float32], branches: Sequence[Sequence[int]]) -> int:
        """Change the rows of logits [n, vocabulary] in place; row i follows text + branches[i].

        Return how many rows may be used, the first ones. Raise InvalidRequest naming grammar where
        that is none.
        """
        for row, branch in zip(logits, branches, strict=True):
            for change in self._changes:
                change(row, branch)
        if self._guide is None:
            return len(logits)
        masks = self._guide.allowed(branches)
        for row, mask in zip(logits, masks, strict=False):
            row[~mask] = -np.inf
        return len(masks)

    def _all(self) -> Sequence[tuple[Change, bool]]:
        p = self._params
        return (
            (self._allow, bool(p.allowed_token_ids)),
            (self._ban_stop_tokens, p.min_tokens > 0 and self._stops.size > 0),
            (self._bias, bool(p.logit_bias)),
            (self._repetition, p.repetition_penalty != 1),
            (self._repeated, p.frequency_penalty != 0 or p.presence_penalty != 0),
        )

    def _allow(self, row: Row, branch: Sequence[int]) -> None:
        row[self._barred] = -np.inf

    def _ban_stop_tokens(self, row: Row, branch: Sequence[int]) -> None:
        if self._length + len(branch) - self._params.prompt_len < self._params.min_tokens:
            row[self._stops] = -np.inf

    def _bias(self, row: Row, branch: Sequence[int]) -> None:
        row[self._biased] += self._biases

    def _repetition(self, row: Row, branch: Sequence[int]) -> None:
        penalty = np.float32(self._params.repetition_penalty)
        seen = self._seen
        if len(branch):
            seen = seen.copy()
            seen[list(branch)] = True
        logits = row[seen]
        row[seen] = np.where(logits > 0, logits / penalty, logits * penalty)

    def _repeated(self, row: Row, branch: Sequence[int]) -> None:
        generated = self._generated
        if len(branch):
            generated = generated.copy()
            # A token may be there twice.
            np.add.at(generated, list(branch), np.float32(1))
        row -= np.float32(self._params.frequency_penalty) * generated
        row -= np.float32(self._params.presence_penalty) * (generated > 0)


def _others(allowed: Sequence[int], vocab_size: int) -> npt.NDArray[np.bool_]:
    """Return which tokens are not allowed; nothing where all are."""
    barred = np.ones(vocab_size if allowed else 0, dtype=np.bool_)
    barred[list(allowed)] = False
    return barred
