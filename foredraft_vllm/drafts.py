"""Drafts for vLLM's texts, all in one message of one stream, in an event loop of a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from drafter_service.texts.client import TextsClient, TextsStream
from foredraft.errors import ForedraftError, InvalidRequest
from foredraft.messages import DraftBlock
from foredraft.texts import KnownText, ProposeTexts
from foredraft.texts import Text as TextRequest
from foredraft.types import Proposal
from foredraft_vllm.rows import Text

log = logging.getLogger(__name__)

T = TypeVar("T")

# A drafter that fails is asked again after so many seconds, and later each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class Drafts:
    """Drafts for texts, by a deadline; what is late is dropped. Never raises."""

    def __init__(
        self,
        address: str,
        proposal: Proposal,
        vocab_size: int,
        max_len: int,
        token: str = "",
    ) -> None:
        self._client = TextsClient(address, token=token)
        self._proposal, self._vocab_size, self._max_len = proposal, vocab_size, max_len
        self._stream: TextsStream | None = None
        # What the stream has of each text, by its number.
        self._sent: dict[int, KnownText] = {}
        self._task: asyncio.Task[Any] | None = None
        self._pause_s, self._resumes = _FIRST_PAUSE_S, 0.0
        # Why this drafter can never draft for this target.
        self.refusal = ""

    async def behind(
        self, texts: Sequence[Text], ended: Sequence[Text], count: int, deadline_s: float
    ) -> list[tuple[int, ...]]:
        """Return up to count tokens behind each text, none where they are not there in time."""
        nothing: list[tuple[int, ...]] = [() for _ in texts]
        now = asyncio.get_running_loop().time()
        late = self._task is not None and not self._task.done()
        if late or self.refusal or now < self._resumes or not texts:
            return nothing
        if self._stream is None or self._stream.draining:
            self._task = asyncio.create_task(self._open())
            return nothing
        asked = self._task = asyncio.create_task(self._asked(self._stream, texts, ended, count))
        await asyncio.wait([asked], timeout=deadline_s)
        return asked.result() if asked.done() else nothing

    async def close(self) -> None:
        """Close everything."""
        if self._task is not None:
            self._task.cancel()
        await self._client.close()

    async def _asked(
        self, stream: TextsStream, texts: Sequence[Text], ended: Sequence[Text], count: int
    ) -> list[tuple[int, ...]]:
        """Return a draft for each text, none for those that the stream has no room for."""
        most = stream.opened.max_texts
        fit = [text for text in texts if len(text.tokens) < stream.max_len][:most]
        if not fit:
            return [() for _ in texts]
        now = {text.number: KnownText(len(text.tokens), text.hash) for text in fit}
        forgotten = (self._sent.pop(text.number, None) for text in ended)
        request = ProposeTexts(
            tuple(self._request(text) for text in fit),
            min(count, stream.opened.max_draft_tokens),
            tuple(known for known in forgotten if known is not None)[:most],
        )
        try:
            drafts = await stream.propose(request)
        except ForedraftError as error:
            await self._failed(error)
            return [() for _ in texts]
        self._pause_s = _FIRST_PAUSE_S
        found: dict[int, tuple[int, ...]] = {}
        for text, draft in zip(fit, drafts, strict=True):
            self._sent.pop(text.number, None)
            if draft.block is not None:
                self._sent[text.number] = now[text.number]
                found[text.number] = self._path(draft.block)
        return [found.get(text.number, ()) for text in texts]

    def _request(self, text: Text) -> TextRequest:
        known = self._sent.get(text.number)
        return TextRequest(known, tuple(text.tokens[known.length if known else 0 :].tolist()))

    def _path(self, block: DraftBlock) -> tuple[int, ...]:
        known = all(token < self._vocab_size for token in block.tokens)
        return block.tokens if known and not block.parents else ()

    async def _open(self) -> None:
        try:
            model = await self._client.info()
            self.refusal = self._unfit(model.vocab_size, model.name)
            if not self.refusal:
                await self._leave()
                longest = min(self._max_len, model.max_len)
                self._stream = await self._client.open(self._proposal, longest)
        except InvalidRequest as error:
            self.refusal = str(error)
        except ForedraftError as error:
            await self._failed(error)
        if self.refusal:
            log.error("the drafter cannot draft for vLLM: %s", self.refusal)

    def _unfit(self, vocab_size: int, name: str) -> str:
        if vocab_size > self._vocab_size:
            return f"{name} has {vocab_size} tokens, the target {self._vocab_size}"
        return ""

    async def _failed(self, error: ForedraftError) -> None:
        log.warning("no drafts: %s", error)
        self._resumes = asyncio.get_running_loop().time() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        await self._leave()

    async def _leave(self) -> None:
        """Close the stream, which forgets its texts."""
        self._sent.clear()
        if self._stream is not None:
            await self._stream.close()
            self._stream = None


class LoopThread:
    """An event loop in a thread: vLLM's proposer is called from none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        run = self._loop.run_forever
        self._thread = threading.Thread(target=run, name="foredraft", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return what a coroutine does; raise TimeoutError where it takes longer."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
