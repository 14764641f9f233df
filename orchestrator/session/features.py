"""The target's fused features on their way from a session's verdicts to its drafter. Sans-I/O.

A drafter that needs features drafts after text whose features are known: never after a predicted
prefix, so it does not run ahead. They are kept for the committed prefix, so that another drafter
can be given all of them; nothing that is wrong with them touches the committed tokens. What a
verifier stored elsewhere stays there: its reference is kept, and sent on. If it turns out lost, all
features are asked for again, in chunks.
"""

from __future__ import annotations

from dataclasses import replace

from foredraft.errors import InvalidRequest
from foredraft.features.wire import check, check_size, size
from foredraft.limits import MAX_FEATURES
from foredraft.messages import DraftOpened, Propose, Verdict
from foredraft.tensors.carrier import is_same_store
from foredraft.tensors.parts import in_one, length
from foredraft.types import ModelInfo
from orchestrator.session.feature_parts import FeatureParts


class FeatureRelay:
    """What one session knows of features: those of tokens up to `count` are here, of those up to
    `sent` at the drafter.

    wanted names those that the drafter reads or, before there is one, that it is expected to read,
    "" for none; most_tokens is the longest that the text can become; store is the one that the
    drafter is expected to have.
    """

    def __init__(self, wanted: str, most_tokens: int, store: str = "") -> None:
        self._wanted = wanted
        self._store, self._asked_store = store, ""
        # Once a stored part was lost, no more are.
        self._in_chunks = False
        self._ended = False
        self._most_tokens = most_tokens
        self._asked, self._asked_from = "", 0
        self._target: ModelInfo | None = None
        self._parts = FeatureParts()
        self._count = self._sent = 0
        # Why the drafter cannot be served, None while it can.
        self.fault: str | None = None

    # The verifier.

    def ask(self) -> tuple[str, int, str]:
        """Return what the next open asks for: the features' name, from which token on, and the
        store that their reader has.
        """
        self._asked_store = "" if self._in_chunks else self._store
        self._asked = "" if self.fault else self._wanted
        self._asked_from = self._count
        self._ended = False
        return self._asked, self._count, self._asked_store

    def verifier_opened(self, model: ModelInfo) -> None:
        """Take note that the open that asked was answered."""
        self._target = model

    @property
    def due(self) -> bool:
        """Whether the drafter needs what the verifier has, but was not asked for."""
        lacking = bool(self._wanted) and self._wanted != self._asked and not self.fault
        return lacking and self._wanted == self._offered

    @property
    def reads(self) -> bool:
        """Whether features are read."""
        return bool(self._wanted)

    @property
    def ended(self) -> bool:
        """Whether the verifier that was opened last need not compute any more."""
        return self._ended

    def lacks(self, name: str) -> bool:
        """Whether a drafter that reads features of that name needs the verifier opened again."""
        return bool(name) and name != self._wanted

    def end(self) -> None:
        """Need none from here on, until a drafter is opened that reads some."""
        self._wanted = ""
        self._drop()
        self._sent = 0
        self._ended = True

    @property
    def at_verifier(self) -> bool:
        """Whether the verifier has all features that the drafter reads, from the first token on."""
        return not self._wanted or (self._asked == self._wanted and self._asked_from == 0)

    def arrived(self, verdict: Verdict, end: int) -> None:
        """Take the features that a verdict brought; with them those of `end` tokens are known."""
        if self._target is None or self.fault or not self._asked or self._asked != self._offered:
            return
        try:
            self._check(verdict, end - self._count, self._target.features_width)
        except InvalidRequest as error:
            self._fail(f"target {self._target.name}: {error}")
            return
        self._parts.add(*verdict.feature_parts, verdict.features)
        self._count = end

    def _check(self, verdict: Verdict, tokens: int, width: int) -> None:
        """Raise InvalidRequest unless these are the features of so many tokens, and finite.

        What is stored is not read here: the drafter checks it.
        """
        if verdict.feature_parts:
            if not self._asked_store:
                raise InvalidRequest(
                    "features are stored, and were to come in chunks", param="features"
                )
            parts = (*verdict.feature_parts, verdict.features)
            check_size(length(parts), tokens, width)
        else:
            check(verdict.features, tokens, width)

    # The drafter.

    def drafter_opened(self, opened: DraftOpened) -> None:
        """Take note that a drafter is there, which was sent nothing yet."""
        if self._wanted != opened.model.features_hash:
            # What came, if anything, is not what it reads.
            self._wanted = opened.model.features_hash
            self._drop()
        elif self._parts.stored and not is_same_store(opened.tensor_store, self._asked_store):
            self._drop()
        self._store = opened.tensor_store
        self._sent = 0
        if size(self._most_tokens, opened.model.features_width) > MAX_FEATURES:
            self._fail(f"features of {self._most_tokens} tokens exceed {MAX_FEATURES} bytes")

    def lost(self) -> None:
        """Take note that what was stored cannot be read: all is asked for again, in chunks."""
        self._in_chunks = True
        if self._parts.stored:
            self._drop()

    def send(self, request: Propose) -> Propose | None:
        """Return a request with what the drafter lacks for it; None if that is not known."""
        if not self._wanted:
            return request
        end = request.base.prefix_len - 1
        if self._target is None or self.fault or not self._sent <= end <= self._count:
            return None
        width = self._target.features_width
        parts, features = in_one(self._parts.between(size(self._sent, width), size(end, width)))
        self._sent = end
        return replace(request, features=features, feature_parts=parts)

    @property
    def _offered(self) -> str:
        return self._target.features_hash if self._target is not None else ""

    def _fail(self, fault: str) -> None:
        self.fault = fault
        self._drop()

    def _drop(self) -> None:
        """Know no features, until the verifier is opened again and asked for them."""
        self._asked = ""
        self._parts.clear()
        self._count = 0
