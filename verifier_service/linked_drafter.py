"""The drafter of a lease: opened before its first draft is wanted, or for that draft, and left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.errors import ForedraftError
from foredraft.lease import DraftSource
from verifier_service.drafters import Drafters, Link


class DrafterFailed(Exception):
    """The drafter broke off, or answered what cannot be verified."""


class NoDrafter(Exception):
    """There is no drafter to ask."""


class LinkedDrafter:
    """The drafter that a session was given last, and the link to it.

    prefix is the session's, which grows. check raises FeaturesLost for features, by their hash,
    that a drafter cannot be given.
    """

    def __init__(
        self,
        drafters: Drafters,
        prefix: CommittedPrefix,
        check: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._drafters = drafters
        self._prefix = prefix
        self._check = check
        self._clock = clock
        self._source: DraftSource | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opening_since = 0.0
        self.link: Link | None = None

    def use(self, source: DraftSource) -> None:
        """Link to this drafter from the next draft on."""
        self._source = source

    def open_early(self, read: Callable[[Link], None]) -> None:
        """Open the drafter's session in the background, unless one is; read has it read the text.

        A failure is not reported: the first draft tries again.
        """
        source = self._source
        if source is None or not self._drafters.supported:
            return
        if self.link is None and self._opening is None:
            self._opening_since = self._clock()
            self._opening = asyncio.create_task(self._open_and_read(source, read))

    def is_opening(self, patience_s: float) -> bool:
        """Return whether the drafter is still being opened, and for no longer than that."""
        if self._opening is None or self._opening.done():
            return False
        return self._clock() - self._opening_since < patience_s

    async def linked(self, timeout_s: float) -> Link:
        """Return the link to the drafter that was named last.

        Raise NoDrafter, DrafterFailed, FeaturesLost or TimeoutError.
        """
        source, opening = self._source, self._opening
        if source is None or not self._drafters.supported:
            raise NoDrafter
        if opening is None and self.link is not None and self.link.source is source:
            return self.link
        self._opening = None
        try:
            async with asyncio.timeout(timeout_s):
                if opening is not None:
                    await opening
                if self.link is None or self.link.source is not source:
                    await self.leave()
                    link = await Link.open(self._drafters, source, self._prefix.tokens)
                    # Another one may have been opened early meanwhile.
                    early, self.link = self.link, link
                    if early is not None:
                        await early.close()
        except ForedraftError as error:
            raise DrafterFailed from error
        self._check(self.link.features)
        return self.link

    async def leave(self) -> None:
        """End the session at the drafter, if there is one; never raises."""
        link, self.link = self.link, None
        if link is not None:
            await link.close()

    async def close(self) -> None:
        """Open nothing more, and leave; never raises."""
        if self._opening is not None:
            self._opening.cancel()
        await self.leave()

    async def _open_and_read(self, source: DraftSource, read: Callable[[Link], None]) -> None:
        try:
            link = await Link.open(self._drafters, source, self._prefix.tokens)
        except ForedraftError:
            return
        if self.link is not None:
            # A draft was wanted meanwhile, and its drafter opened for it.
            await link.close()
            return
        self.link = link
        read(link)
