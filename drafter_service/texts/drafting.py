"""A stream's texts on the engine: opened as they come, drafted for in one pass, then forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, TypeVar, cast

from drafter_service.batcher import Batcher
from drafter_service.texts.by_hash import TextsByHash, TextSession
from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash
from foredraft.errors import InvalidRequest, Overloaded, PrefixMismatch
from foredraft.messages import DraftBlock, DraftOpen, Propose
from foredraft.texts import KnownText, ProposeTexts, Text, TextDraft, TextsOpen, TextsOpened
from foredraft.types import Base, SamplingParams

T = TypeVar("T")

_NO_DRAFT, _UNKNOWN = TextDraft(), TextDraft(unknown=True)


class Texts:
    """The texts of one stream, the most recent of them; close it at the stream's end."""

    def __init__(self, batcher: Batcher, opening: TextsOpen, most: int) -> None:
        self._batcher, self._opening, self._most = batcher, opening, most
        self._by_hash = TextsByHash(most)
        self._handles: set[int] = set()
        self._numbers = count()

    async def opened(self) -> TextsOpened:
        """Return the drafter's answer to the stream; raise InvalidRequest naming a wrong field."""
        request = self._open_of("text", (0,), SamplingParams())
        opened = await self._batcher.call(lambda proposals: proposals.engine.offer(request))
        if opened.model.features_hash:
            raise InvalidRequest("this drafter reads features, which texts lack", param="proposal")
        return TextsOpened(opened.model, opened.max_draft_tokens, self._most)

    async def drafts(self, request: ProposeTexts) -> list[TextDraft]:
        """Return a draft for each text; raise InvalidRequest where one is out of bounds."""
        self._close(session for each in request.ended if (session := self._by_hash.take(each)))
        sessions = await _all(map(self._session, request.texts))
        asked = [
            (session, _proposed(session, text, request.num_tokens))
            for session, text in zip(sessions, request.texts, strict=True)
            if isinstance(session, TextSession)
        ]
        answers = iter(await self._answers(asked))
        drafts = [next(answers) if isinstance(each, TextSession) else each for each in sessions]
        self._close(self._by_hash.excess())
        return drafts

    def close(self) -> None:
        """Free all sessions."""
        for handle in self._handles:
            self._batcher.close(handle)
        self._handles.clear()

    async def _session(self, text: Text) -> TextSession | TextDraft:
        """Return the text's session, a new one for a new text, or what is answered without one."""
        if text.known is not None:
            return self._by_hash.take(text.known) or _UNKNOWN
        name = f"text-{next(self._numbers)}"
        try:
            handle, _ = await self._batcher.open(self._open_of(name, text.append, text.sampling))
        except Overloaded:
            return _NO_DRAFT
        self._handles.add(handle)
        return TextSession(handle, name)

    async def _answers(self, asked: Sequence[tuple[TextSession, Propose]]) -> list[TextDraft]:
        proposals = [(session.handle, request) for session, request in asked]
        try:
            futures = self._batcher.propose_all(proposals)
        except Overloaded:
            self._close(session for session, _ in asked)
            return [_UNKNOWN] * len(asked)
        return await _all(
            self._kept(session, request.base, future)
            for (session, request), future in zip(asked, futures, strict=True)
        )

    async def _kept(
        self, session: TextSession, base: Base, answer: asyncio.Future[DraftBlock]
    ) -> TextDraft:
        """Return a session's draft, and keep it for its text; one whose hash lied is closed."""
        try:
            block = await answer
        except PrefixMismatch:
            self._close([session])
            return _UNKNOWN
        self._by_hash.keep(KnownText(base.prefix_len, base.prefix_hash), session)
        return TextDraft(block)

    def _open_of(self, name: str, prefix: tuple[int, ...], sampling: SamplingParams) -> DraftOpen:
        o = self._opening
        return DraftOpen(name, prefix, sampling, o.proposal, o.max_len, o.params, num_guesses=0)

    def _close(self, sessions: Iterable[TextSession]) -> None:
        for session in sessions:
            self._handles.discard(session.handle)
            self._batcher.close(session.handle)


def _proposed(session: TextSession, text: Text, num_tokens: int) -> Propose:
    known = text.known or KnownText(0, EMPTY_PREFIX_HASH)
    length = known.length + len(text.append)
    base = Base(session.id, 0, length, extend_hash(known.hash, text.append))
    if text.known is None:
        # It was opened with the whole.
        return Propose(base, length, (), num_tokens)
    return Propose(base, known.length, text.append, num_tokens)


async def _all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all return; raise the first error once none runs any more."""
    found = await asyncio.gather(*works, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return cast("list[T]", found)
