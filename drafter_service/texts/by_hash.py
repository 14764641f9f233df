"""The session of each text of a stream: found by the text's hash, forgotten if not recent. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from foredraft.texts import KnownText


class TextSession(NamedTuple):
    """A text's session on the engine."""

    handle: int
    id: str


class TextsByHash:
    """At most so many texts. Equal ones are several sessions, of which any is found."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_handle: OrderedDict[int, tuple[KnownText, TextSession]] = OrderedDict()
        self._by_text: dict[KnownText, list[TextSession]] = {}

    def take(self, known: KnownText) -> TextSession | None:
        """Return a session that was kept for this text, and no longer keep it; None without one."""
        sessions = self._by_text.get(known)
        if not sessions:
            return None
        session = sessions.pop()
        if not sessions:
            del self._by_text[known]
        del self._by_handle[session.handle]
        return session

    def keep(self, known: KnownText, session: TextSession) -> None:
        """Keep a session for the text that it has now."""
        self._by_handle[session.handle] = known, session
        self._by_text.setdefault(known, []).append(session)

    def excess(self) -> list[TextSession]:
        """Forget and return the least recently kept sessions that there is no room for."""
        beyond = list(self._by_handle.values())[: max(0, len(self._by_handle) - self._most)]
        for known, session in beyond:
            self._forget(known, session)
        return [session for _, session in beyond]

    def all(self) -> list[TextSession]:
        """Return every session that is kept."""
        return [session for _, session in self._by_handle.values()]

    def _forget(self, known: KnownText, session: TextSession) -> None:
        del self._by_handle[session.handle]
        self._by_text[known].remove(session)
        if not self._by_text[known]:
            del self._by_text[known]
