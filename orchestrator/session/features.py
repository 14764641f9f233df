"""The target's fused features on their way from a session's verdicts to its drafter. Sans-I/O.

A drafter that needs features drafts behind text whose features are known: never behind a predicted
prefix, so it does not run ahead. One that can do without takes those that are known, of the
prompt's last token and of what is generated: the prompt need not be told of. They are kept for the
committed prefix, so that another drafter can be given all of them; nothing that is wrong with them
touches the committed tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from foredraft.errors import InvalidRequest
from foredraft.features.wire import check, size
from foredraft.limits import MAX_FEATURES
from foredraft.types import DraftOpened, ModelInfo


class Wanted(NamedTuple):
    """The features that a drafter reads, "" for none, and whether it can do without."""

    name: str = ""
    optional: bool = False


NOTHING = Wanted()


class FeatureRelay:
    """What one session knows of features: those of tokens up to `count` are here, of those up to
    `sent` at the drafter, none of those before `first`.

    wanted are those that the drafter reads or, before there is one, that it is expected to read;
    most_tokens is the longest that the text can become, last_of_prompt where its prompt ends.
    """

    def __init__(self, wanted: Wanted, most_tokens: int, last_of_prompt: int = 0) -> None:
        self._wanted = wanted
        self._most_tokens = most_tokens
        self._last_of_prompt = last_of_prompt
        self._asked = ""
        self._target: ModelInfo | None = None
        self._data = bytearray()
        self._first = self._count = self._sent = self._start
        # What is wrong with the features that came.
        self._fault: str | None = None

    # The verifier.

    def ask(self) -> tuple[str, int]:
        """Return what the next open asks for: the features' name, and from which token on."""
        self._asked = "" if self._fault else self._wanted.name
        return self._asked, self._count

    def verifier_opened(self, model: ModelInfo) -> None:
        """Take note that the open that asked was answered."""
        self._target = model

    @property
    def due(self) -> bool:
        """Whether the drafter needs what the verifier could tell, but was not asked for."""
        name, optional = self._wanted
        lacking = bool(name) and name != self._asked and not self._fault
        return lacking and not optional and name == self._offered

    def arrived(self, data: bytes, end: int) -> None:
        """Take the features that a verdict brought; with them those of `end` tokens are known."""
        if self._target is None or self._fault or not self._asked or self._asked != self._offered:
            return
        try:
            check(data, end - self._count, self._target.features_width)
        except InvalidRequest as error:
            self._fail(f"target {self._target.name}: {error}")
            return
        self._data += data
        self._count = end

    # The drafter.

    @property
    def fault(self) -> str | None:
        """Why the drafter cannot be served, None while it can."""
        return None if self._wanted.optional else self._fault

    def drafter_opened(self, opened: DraftOpened) -> None:
        """Take note that a drafter is there, which was sent nothing yet."""
        expected = self._wanted
        self._wanted = Wanted(opened.model.features_hash, opened.model.features_optional)
        if self._wanted != expected:
            # What came, if anything, is not what it reads.
            self._data.clear()
            self._asked = ""
            self._first = self._count = self._start
        self._sent = self._first
        if size(self._most_tokens, opened.model.features_width) > MAX_FEATURES:
            self._fail(f"features of {self._most_tokens} tokens exceed {MAX_FEATURES} bytes")

    def send(self, prefix_len: int) -> bytes | None:
        """Return what the drafter lacks to draft behind a prefix; None if it is needed and not
        known.
        """
        name, optional = self._wanted
        if not name:
            return b""
        end = min(prefix_len - 1, self._count) if optional else prefix_len - 1
        if self._target is None or self._fault or not self._sent <= end <= self._count:
            return b"" if optional else None
        width = self._target.features_width
        first, sent, self._sent = self._first, self._sent, end
        return bytes(self._data[size(sent - first, width) : size(end - first, width)])

    @property
    def _start(self) -> int:
        return self._last_of_prompt if self._wanted.optional else 0

    @property
    def _offered(self) -> str:
        return self._target.features_hash if self._target is not None else ""

    def _fail(self, fault: str) -> None:
        self._fault = fault
        self._data.clear()
        self._count = self._first
