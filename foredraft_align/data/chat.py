"""A target's chat template as token ids: what stands before a user's turn and before an answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

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
    """A target folder's tokenizer, for training data alone."""

    def __init__(self, folder: Path) -> None:
        """Raise WeightsError where the folder has none that can be read."""
        found = tokenizer_file(folder)
        if found is None:
            raise WeightsError("the target has no tokenizer.json")
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                found.parent, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise WeightsError(f"the target's tokenizer cannot be read: {error}") from None
        self._ends = eos_token_ids(folder)

    def ids(self, text: str) -> tuple[int, ...]:
        """Return a text's token ids; special tokens in it become their ids, none is added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def text(self, ids: tuple[int, ...] | list[int]) -> str:
        """Return the text of token ids without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def format(self) -> ChatFormat:
        """The empty chat template, taken apart.

        Raise WeightsError where a base model's texts have nothing to begin with.
        """
        if not self._tokenizer.chat_template:
            first = self._tokenizer.bos_token_id
            begin = first if first is not None else next(iter(self._ends), None)
            if begin is None:
                raise WeightsError("the target's tokenizer has neither a template nor BOS nor EOS")
            return ChatFormat((begin,), (), frozenset(self._ends))
        whole = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
        )
        before, mark, between = whole.partition(_MARK)
        if not mark or not between:
            raise WeightsError("the target's chat template does not keep what the user wrote")
        return ChatFormat(self.ids(before), self.ids(between), frozenset(self._ends))
