"""One request on denoisers: committed blocks, the block in progress, what is streamed. Pure.

A lost replica costs the block in progress, which begins again elsewhere after the committed ones.
The next state is a function of the state and the seed, so it comes out the same; what was streamed
of it already is compared all the same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from foredraft.decoding.block_state import MASKED, State, extends, hash_state, opened
from foredraft.decoding.prefix import extend_hash, hash_prefix
from foredraft.denoising import Advance, Advanced, DenoiseOpen
from foredraft.errors import CorruptModelOutput, Unavailable
from foredraft.types import Base, FinishReason, ModelInfo
from orchestrator.session.compatibility import same_target


class DenoiseSession:
    """The text of a request, whose prefix is the prompt; `finish` is why it ended, None before."""

    def __init__(self, request: DenoiseOpen) -> None:
        self.finish: FinishReason | None = None
        self._request = request
        self._stops = frozenset(request.stop_token_ids)
        # The prompt and the committed blocks; only the prompt may end inside a block.
        self._tokens = request.prefix
        self._streamed: tuple[int, ...] = ()
        self._model: ModelInfo | None = None
        self._number = 0

    @property
    def text(self) -> tuple[int, ...]:
        """The new tokens that were streamed."""
        return self._streamed

    @property
    def block(self) -> tuple[State, int]:
        """The block in progress, and its first slot's number among the new tokens."""
        return self._state, self._start - len(self._request.prefix)

    def open_message(self) -> DenoiseOpen:
        """Return what opens the session on a replica, after the committed blocks."""
        new = len(self._tokens) - len(self._request.prefix)
        left = self._request.max_new_tokens - new
        return replace(self._request, prefix=self._tokens, max_new_tokens=left)

    def opened(self, model: ModelInfo) -> None:
        """Begin the current block on a replica; raise Unavailable if it serves another target."""
        if self._model is not None and not same_target(self._model, model):
            raise Unavailable("the denoiser serves another model than the one before")
        self._model = model
        self._start = len(self._tokens) - len(self._tokens) % model.block_length
        self._hash = hash_prefix(self._tokens[: self._start])
        self._state: State = opened(self._tokens[self._start :], model.block_length)

    def next_advance(self, calls: int) -> Advance:
        """Return what asks for calls from the current state on."""
        assert self._model is not None
        block = self._start // self._model.block_length
        named = hash_state(self._hash, block, self._state)
        base = Base(self._request.session_id, self._number, self._start, named)
        self._number += 1
        return Advance(base, calls)

    def advanced(self, request: Advance, answer: Advanced) -> tuple[int, ...]:
        """Take an answer; return the tokens that it adds to the text, maybe none.

        Raise CorruptModelOutput, leaving the session as it was, where it is no answer to the
        request, unfills a slot, fills none, or disagrees with what was streamed.
        """
        self._check(request, answer)
        tokens = (*self._tokens[: self._start], *answer.committed)
        filled = takewhile(lambda token: token != MASKED, answer.block)
        shown, finish = self._wanted((*tokens, *filled))
        common = min(len(shown), len(self._streamed))
        if shown[:common] != self._streamed[:common]:
            raise CorruptModelOutput("the denoiser came to other tokens than the one before")
        if not answer.block and finish is None:
            raise CorruptModelOutput("the denoiser ended the text too early")
        if answer.committed:
            self._tokens, self._start = tokens, len(tokens)
            self._hash = extend_hash(self._hash, answer.committed)
        self._state, self.finish = answer.block, finish
        new = shown[len(self._streamed) :]
        self._streamed += new
        return new

    def _check(self, request: Advance, answer: Advanced) -> None:
        assert self._model is not None
        length = self._model.block_length
        if answer.base != request.base or not 1 <= answer.calls <= request.calls:
            raise CorruptModelOutput("the denoiser answered another advance than the one asked")
        if len(answer.committed) % length or len(answer.block) not in (0, length):
            raise CorruptModelOutput("the denoiser's answer is not of whole blocks")
        reached = (*answer.committed, *answer.block)[:length]
        if reached == self._state or not extends(reached, self._state):
            raise CorruptModelOutput("the denoiser's state does not follow the one before")

    def _wanted(self, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Return what is wanted of the tokens after the prompt, and why the text ends there."""
        most, prompt = self._request.max_new_tokens, len(self._request.prefix)
        new = tokens[prompt : prompt + most]
        stop = next((at for at, token in enumerate(new) if token in self._stops), None)
        if stop is not None:
            return new[: stop + 1], FinishReason.STOP
        return new, FinishReason.LENGTH if len(new) == most else None
