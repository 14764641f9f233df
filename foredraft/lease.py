"""Direct rounds: a verifier fetches a session's drafts itself, and the orchestrator hears of them.

A round then takes two messages between the services instead of four. Who asks for a draft cannot
change the output: the target decides alone. Records only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foredraft.ngram.tree import TextTreeParams
from foredraft.types import DraftBlock, DraftOpen, Verdict


class DirectFault(StrEnum):
    """Why direct rounds ended before what was allowed was used up."""

    NONE = ""
    LATE = "late"
    LOST = "lost"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class DraftSource:
    """A drafter replica, "host:port", and what a session is opened with there.

    The open's prefix is empty: a verifier has the text. Where that tells enough of what follows, by
    `text`, its own tree is verified and the drafter not asked; None: it is always asked.
    """

    address: str
    open: DraftOpen
    text: TextTreeParams | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """Allows so many more rounds, each with a draft of at most num_tokens.

    order counts these messages, from 1: the newest one holds. A round waits for its draft for
    deadline_us microseconds. round is the number of the first one, where none is under way. With
    ahead, the next draft is asked for while a round is verified, for its likely outcome.
    """

    order: int
    rounds: int
    num_tokens: int
    deadline_us: int
    round: int
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class DirectRound:
    """A draft that the verifier fetched, and its verdict; a block without tokens is a plain step.

    num_tokens were asked for, 0 for a plain step; left is how many rounds are
    allowed beyond the one under way by now; the draft was waited for draft_us microseconds.
    ran_ahead says that the next draft was asked for meanwhile, hit that it was for this outcome.
    """

    block: DraftBlock
    verdict: Verdict
    num_tokens: int
    left: int
    draft_us: int = 0
    ran_ahead: bool = False
    hit: bool = False


@dataclass(frozen=True, slots=True)
class DirectEnded:
    """The verifier waits to be asked; order is that of the newest Direct that it had."""

    order: int
    fault: DirectFault = DirectFault.NONE
