"""Texts that follow a grammar: which tokens may come next, by llguidance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

from foredraft.errors import InvalidRequest
from foredraft.types import Grammar, GrammarKind
from verifier_service.rules.logits import Guide


class Grammars(Protocol):
    """Makes guides."""

    def guide(self, grammar: Grammar) -> Guide:
        """Return the guide of a text that begins; raise InvalidRequest naming grammar."""


class NoGrammars:
    """What a target without a tokenizer has."""

    def guide(self, grammar: Grammar) -> Guide:
        """Refuse every grammar."""
        raise InvalidRequest("this target has no tokenizer to read grammars with", param="grammar")


class TokenGrammars:
    """Grammars over a tokenizer's tokens, of which eos may end a text."""

    def __init__(self, tokenizer: Path, vocab_size: int, eos: Sequence[int]) -> None:
        self._tokenizer = LLTokenizer(str(tokenizer), n_vocab=vocab_size, eos_token=list(eos))
        self._vocab_size = vocab_size

    def guide(self, grammar: Grammar) -> Guide:
        """Return the guide of a text that begins."""
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
        matcher = LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise InvalidRequest(f"grammar: {matcher.get_error()}", param="grammar")
        return TokenGuide(matcher, self._vocab_size)


class TokenGuide:
    """One text under a grammar.

    What a grammar does not allow is not taken in: the mask after it is that before it. So nothing
    is asked of drafts, whose branches may be anything; a row after such a token is never reached.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def extend(self, token: int) -> None:
        """Take in the text's next token."""
        self._matcher.try_consume_tokens([token])

    def allowed(self, branch: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return which tokens may follow text + branch [vocabulary]; EOS, where it may end."""
        taken = self._matcher.try_consume_tokens(list(branch))
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._matcher.rollback(taken)
        found = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
        return found.astype(np.bool_)
