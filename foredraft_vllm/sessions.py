"""Sessions on a drafter, one for each text of vLLM's batch, in an event loop of a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from drafter_service.client import DrafterClient, DrafterStream
from foredraft.errors import ForedraftError, InvalidRequest
from foredraft.types import Base, DraftOpen, Proposal, Propose, SamplingParams
from foredraft_vllm.rows import Text

log = logging.getLogger(__name__)

T = TypeVar("T")

# Room that a session has for more text; beyond it the text opens another one.
_ROOM = 2048
# A drafter that fails is asked again after so many seconds, and later each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class _Session:
    """One text's stream; the drafter was sent the first `named` tokens of it."""

    def __init__(self, opening: DraftOpen, stream: DrafterStream) -> None:
        self.id, self.max_len = opening.session_id, opening.max_len
        self.stream, self.named = stream, len(opening.prefix)
        self.asked: asyncio.Task[tuple[int, ...]] | None = None


class Sessions:
    """Drafts for texts, by a deadline; what is late is dropped. Never raises."""

    def __init__(self, address: str, proposal: Proposal, vocab_size: int, max_len: int) -> None:
        self._client = DrafterClient(address)
        self._proposal, self._vocab_size, self._max_len = proposal, vocab_size, max_len
        self._sessions: dict[int, _Session] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._pause_s, self._resumes = _FIRST_PAUSE_S, 0.0
        # Why this drafter can never draft for this target.
        self.refusal = ""

    async def drafts(
        self, texts: Sequence[Text], count: int, deadline_s: float
    ) -> list[tuple[int, ...]]:
        """Return up to count tokens behind each text, none where they are not there in time."""
        asked = [self._ask(text, count) for text in texts]
        waiting = {task for task in asked if task is not None}
        if waiting:
            await asyncio.wait(waiting, timeout=deadline_s)
        return [_result(task) for task in asked]

    async def end(self, texts: Sequence[Text]) -> None:
        """Close the sessions of texts that have ended."""
        for text in texts:
            opening = self._opening.pop(text.number, None)
            if opening is not None:
                opening.cancel()
            session = self._sessions.pop(text.number, None)
            if session is not None:
                await session.stream.close()

    async def close(self) -> None:
        """Close everything."""
        for task in self._opening.values():
            task.cancel()
        await self._client.close()

    def _ask(self, text: Text, count: int) -> asyncio.Task[tuple[int, ...]] | None:
        """Request a draft; None where a session is still to be opened, or has not answered yet."""
        session = self._sessions.get(text.number)
        if session is None or len(text.tokens) + count > session.max_len:
            self._open(text)
            return None
        if session.asked is not None and not session.asked.done():
            return None
        keep, length = session.named, len(text.tokens)
        base = Base(session.id, length, length, text.hash)
        most = min(count, session.stream.opened.max_draft_tokens)
        request = Propose(base, keep, tuple(text.tokens[keep:].tolist()), most)
        session.named = length
        session.asked = asyncio.create_task(self._answered(text, session, request))
        return session.asked

    async def _answered(self, text: Text, session: _Session, request: Propose) -> tuple[int, ...]:
        try:
            block = await session.stream.propose(request)
        except ForedraftError as error:
            self._failed(error)
            if self._sessions.get(text.number) is session:
                del self._sessions[text.number]
            return ()
        self._pause_s = _FIRST_PAUSE_S
        known = all(token < self._vocab_size for token in block.tokens)
        return block.tokens if known and not block.parents else ()

    def _open(self, text: Text) -> None:
        now = asyncio.get_running_loop().time()
        task = self._opening.get(text.number)
        busy = task is not None and not task.done()
        if busy or self.refusal or now < self._resumes or len(text.tokens) >= self._max_len:
            return
        self._opening[text.number] = asyncio.create_task(self._opened(text, text.tokens.tolist()))

    async def _opened(self, text: Text, tokens: list[int]) -> None:
        prefix, max_len = tuple(tokens), min(self._max_len, len(tokens) + _ROOM)
        try:
            model = await self._client.info()
            max_len = min(max_len, model.max_len)
            if len(prefix) >= max_len:
                return
            opening = DraftOpen(
                uuid.uuid4().hex, prefix, SamplingParams(), self._proposal, max_len, num_guesses=0
            )
            stream = await self._client.open(opening)
        except InvalidRequest as error:
            self.refusal = str(error)
            log.error("the drafter refuses vLLM's requests: %s", error)
            return
        except ForedraftError as error:
            self._failed(error)
            return
        self.refusal = self._unfit(stream)
        if self.refusal:
            log.error("the drafter cannot draft for vLLM: %s", self.refusal)
            await stream.close()
            return
        old, self._sessions[text.number] = (
            self._sessions.get(text.number),
            _Session(opening, stream),
        )
        if old is not None:
            await old.stream.close()

    def _unfit(self, stream: DrafterStream) -> str:
        model = stream.opened.model
        if model.features_hash:
            return f"{model.name} reads the target's features, which vLLM does not send"
        if model.vocab_size > self._vocab_size:
            return f"{model.name} has {model.vocab_size} tokens, the target {self._vocab_size}"
        return ""

    def _failed(self, error: ForedraftError) -> None:
        log.warning("no drafts: %s", error)
        self._resumes = asyncio.get_running_loop().time() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _result(task: asyncio.Task[tuple[int, ...]] | None) -> tuple[int, ...]:
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return ()
    return task.result()


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
