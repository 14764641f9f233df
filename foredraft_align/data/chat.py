"""A target's chat template as token ids: what stands before a user's turn and before an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from foredraft.chat_template import read_chat_template
from foredraft.errors import WeightsError
from foredraft.model_files import eos_token_ids, tokenizer_file

_MARK = "\u241f"
"""Stands for the user's turn while the template is taken apart."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The token ids around a conversation of one turn.

    A user's turn follows `before`; `between` ends it and begins the answer, which ends with one of
    `ends`. For a target without a chat template `between` is empty: a text is all answer.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    ends: frozenset[int]


class ChatTokenizer:
    """A target folder's tokenizer and chat template."""

    def __init__(self, folder: Path) -> None:
        """Raise WeightsError where the folder has no tokenizer that can be read."""
        found = tokenizer_file(folder)
        if found is None:
            raise WeightsError("the target has no tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(found))
        except Exception as error:  # noqa: BLE001, tokenizers raises Exception itself
            raise WeightsError(f"the target's tokenizer cannot be read: {error}") from None
        self._template = read_chat_template(found.parent)
        self._ends = eos_token_ids(folder)

    def ids(self, text: str) -> tuple[int, ...]:
        """Return a text's token ids; special tokens in it become their ids, none is added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids without special tokens."""
        return str(self._tokenizer.decode(list(ids)))

    @property
    def format(self) -> ChatFormat:
        """The empty chat template, taken apart; a base model's texts begin with an end.

        Raise WeightsError where there is neither.
        """
        if self._template is None:
            if not self._ends:
                raise WeightsError("the target has neither a chat template nor an end token")
            return ChatFormat(self._ends[:1], (), frozenset(self._ends))
        whole = self._template.render([{"role": "user", "content": _MARK}])
        before, mark, between = whole.partition(_MARK)
        if not mark or not between:
            raise WeightsError("the target's chat template does not keep what the user wrote")
        return ChatFormat(self.ids(before), self.ids(between), frozenset(self._ends))
