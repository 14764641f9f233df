"""One text of the training data while the target writes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft_align.data.chat import ChatFormat

_QUESTION_TEMPERATURE = 0.8
"""At 1, a small model's questions are noise."""


@dataclass(slots=True)
class Conversation:
    """A user's turn, which the target itself continues, and the target's answer (Magpie,
    arXiv 2406.08464).

    The first `done` tokens were read by the target. The answer begins at `answer_from`, None while
    the user's turn is still being written.
    """

    tokens: list[int]
    temperature: float
    max_question: int
    max_tokens: int
    format: ChatFormat
    answer_from: int | None = None
    done: int = 0
    ended: bool = False
    _asked_from: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._asked_from = len(self.tokens)
        if not self.format.between and self.answer_from is None:
            self.answer_from = len(self.tokens)

    @property
    def unread(self) -> list[int]:
        """What the next pass of the target reads."""
        return self.tokens[self.done :]

    @property
    def sampling_temperature(self) -> float:
        """Of the next token."""
        return _QUESTION_TEMPERATURE if self.answer_from is None else self.temperature

    def add(self, token: int) -> None:
        """Take the token that the target chose behind all others."""
        self.done = len(self.tokens)
        if self.answer_from is None:
            ends = token == self.format.between[0] or token in self.format.ends
            if ends or len(self.tokens) - self._asked_from >= self.max_question:
                self.tokens.extend(self.format.between)
                self.answer_from = len(self.tokens)
            else:
                self.tokens.append(token)
        else:
            self.tokens.append(token)
            self.ended = token in self.format.ends or len(self.tokens) >= self.max_tokens


def given(
    question: tuple[int, ...], temperature: float, limits: tuple[int, int], format: ChatFormat
) -> Conversation:
    """Return a conversation whose user's turn is given, cut to limits[0] tokens.

    limits are the most tokens of a question and of the whole text.
    """
    tokens = [*format.before, *question[: limits[0]], *format.between]
    return Conversation(tokens, temperature, *limits, format, answer_from=len(tokens))


def begun(
    opening: tuple[int, ...], temperature: float, limits: tuple[int, int], format: ChatFormat
) -> Conversation:
    """Return a conversation whose user's turn begins with an opening and is the target's own."""
    return Conversation([*format.before, *opening], temperature, *limits, format)
