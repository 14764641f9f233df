"""Texts that follow a grammar: which tokens may come next, by llguidance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from foredraft.errors import InvalidRequest
from foredraft.types import Grammar, GrammarKind
from verifier_service.rules.logits import GrammarMatcher, Mask

# A mask of the dearest grammars that were tried takes some 20 ms with these, their first one, which
# is computed at the open, 200 ms; with llguidance's own 0.3 s and 5 s. A JSON schema of 100 fields
# of ten dates each is beyond them, one of 30 is not.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=100_000,
    step_lexer_fuel=20_000,
    step_max_items=5_000,
    max_lexer_states=50_000,
    verbose_errors=False,
)
# What a round's branches may take, in seconds: drafts are cut where it is up.
_ROUND_S = 0.01


class Grammars(Protocol):
    """Makes matchers."""

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Return the matcher of a text that begins; raise InvalidRequest naming grammar."""


class NoGrammars:
    """What a target without a tokenizer has."""

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Refuse every grammar."""
        raise InvalidRequest("this target has no tokenizer to read grammars with", param="grammar")


class TokenGrammars:
    """Grammars over a tokenizer's tokens, of which eos may end a text."""

    def __init__(
        self,
        tokenizer: Path,
        vocab_size: int,
        eos: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tokenizer = LLTokenizer(str(tokenizer), n_vocab=vocab_size, eos_token=list(eos))
        self._vocab_size = vocab_size
        self._clock = clock

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Return the matcher of a text that begins, its first mask computed: the dearest one."""
        try:
            match grammar.kind:
                case GrammarKind.JSON_SCHEMA:
                    source = LLMatcher.grammar_from_json_schema(grammar.text)
                case GrammarKind.REGEX:
                    source = LLMatcher.grammar_from_regex(grammar.text)
                case GrammarKind.LARK:
                    source = LLMatcher.grammar_from_lark(grammar.text)
        except ValueError as error:
            raise InvalidRequest(f"grammar: {error}", param="grammar") from None
        # A copy would share its caches with the original, and its faults.
        text, branches = (
            LLMatcher(self._tokenizer, source, log_level=0, limits=_LIMITS) for _ in range(2)
        )
        for matcher in (text, branches):
            matcher.compute_bitmask()
            _check(matcher)
        return TokenGuide(text, branches, self._vocab_size, self._clock)


class TokenGuide:
    """One text under a grammar.

    Branches have a matcher of their own: one that a draft drove beyond the limits is given up, and
    the text's own matcher decides the same with drafts and without. What a grammar does not
    allow in a branch is not taken in: the mask after it is that before it. So nothing is asked of
    drafts, whose branches may be anything; a row after such a token is never reached.
    """

    def __init__(
        self,
        text: LLMatcher,
        branches: LLMatcher,
        vocab_size: int,
        clock: Callable[[], float],
    ) -> None:
        self._text = text
        self._branches: LLMatcher | None = branches
        self._vocab_size = vocab_size
        self._clock = clock
        self._left = False
        self.seconds = 0.0

    def extend(self, token: int) -> None:
        """Take in the text's next token."""
        self._left = not _takes(self._text, token)
        if self._branches is not None and not _takes(self._branches, token):
            self._branches = None

    def allowed(self, branches: Sequence[Sequence[int]]) -> list[Mask]:
        """Return which tokens may follow text + branch [vocabulary], for the first of branches.

        There are fewer than branches where the time is up, or a branch is beyond the limits. Raise
        InvalidRequest naming grammar where the text itself is.
        """
        began = self._clock()
        if self._left and not self._text.is_error():
            raise InvalidRequest("the grammar does not allow the text", param="grammar")
        masks: dict[tuple[int, ...], Mask] = {}
        found: list[Mask] = []
        for branch in map(tuple, branches):
            matcher = self._branches if branch else self._text
            if matcher is None or (found and self._clock() - began > _ROUND_S):
                break
            taken = matcher.try_consume_tokens(list(branch))
            before = masks.get(branch[:taken])
            # What the mask before allows is only refused beyond the limits, or where a text ended.
            allowed = taken < len(branch) and before is not None and before[branch[taken]]
            refused = allowed and not matcher.is_stopped()
            bits = matcher.compute_bitmask()
            if found and (refused or matcher.is_error()):
                self._branches = None
                break
            _check(matcher)
            matcher.rollback(taken)
            mask = np.unpackbits(
                np.frombuffer(bits, np.uint8), count=self._vocab_size, bitorder="little"
            )
            masks[branch] = mask.astype(np.bool_)
            found.append(masks[branch])
        self.seconds = self._clock() - began
        return found


def _takes(matcher: LLMatcher, token: int) -> bool:
    """Take in a token; a matcher whose text is complete need not take its EOS."""
    taken = matcher.try_consume_tokens([token]) == 1
    return taken or (matcher.is_stopped() and not matcher.is_error())


def _check(matcher: LLMatcher) -> None:
    """Raise InvalidRequest naming grammar if the matcher is at fault.

    It then allows EOS alone, as if its text were complete.
    """
    if matcher.is_error():
        message = matcher.get_error().partition("\n")[0]
        # llguidance's name for a state that no text leads out of.
        known = "no text follows it" if message == "NoExtensionBias" else message
        raise InvalidRequest(f"grammar: {known}", param="grammar")
