"""Prompt lookup as a drafter port: the free baseline that every model drafter must beat."""

from __future__ import annotations

from drafter_service.core.lookup import continuation
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, ModelInfo, Proposal, Propose

_SHORTEST = 2
_MAX_BLOCK = 15


class LookupDrafter:
    """Drafts what followed the longest earlier match, of two tokens at least."""

    def __init__(self, target: ModelInfo) -> None:
        self._opened = DraftOpened(target, _MAX_BLOCK)  # it has the target's own vocabulary

    async def open(self, request: DraftOpen) -> LookupStream:
        """Open a session; it lives in this process."""
        return LookupStream(request, self._opened)


class LookupStream:
    """One session's tokens; see ports.DraftStream."""

    def __init__(self, request: DraftOpen, opened: DraftOpened) -> None:
        self._tokens = list(request.prefix)
        self.opened = opened

    async def propose(self, request: Propose) -> DraftBlock:
        """Return up to num_tokens tokens after request.base; none when nothing matches."""
        del self._tokens[request.keep_len :]
        self._tokens += request.append
        found = continuation(self._tokens, request.num_tokens + 1, _SHORTEST)
        tokens = found[: request.num_tokens]
        bonus = found[request.num_tokens] if len(found) > request.num_tokens else -1
        return DraftBlock(
            request.base,
            tokens,
            proposal=Proposal.ARGMAX,
            generated_len=len(tokens),
            bonus_guess=bonus,
        )

    async def close(self) -> None:
        """Nothing to free."""
