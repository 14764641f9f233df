"""Verifier-led rounds: a verifier that holds a lease on a session asks its drafter itself.

A round then takes two messages between the services instead of four. Who asks for a draft cannot
change the output: the target decides alone. Records only; docs/protocol.md has the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foredraft.messages import DraftBlock, DraftOpen, Verdict
from foredraft.ngram.params import NgramParams


class LeaseFault(StrEnum):
    """Why a lease ended before its rounds were used up."""

    NONE = ""
    LATE = "late"
    LOST = "lost"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class DraftSource:
    """The drafter replica of a session, "host:port", and what its stream is opened with.

    The open's prefix is empty: a verifier has the text. ngram is how the text's own draft trees
    are grown, which come before any request; None: there are none.
    """

    address: str
    open: DraftOpen
    ngram: NgramParams | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Starts a lease of so many rounds, or replaces the rest of the one that is active.

    seq counts a stream's grants, from 1: the newest one holds, and with 0 rounds it ends the lease.
    Each draft has at most num_draft_tokens tokens and is waited for deadline_us microseconds. round
    is the number of the lease's first round, not read while one is active. With run_ahead the next
    draft is requested while a round is verified, for its predicted outcomes. With plain_passes the
    rounds are plain, of so many passes each.
    """

    seq: int
    rounds: int
    num_draft_tokens: int
    deadline_us: int
    round: int
    run_ahead: bool = False
    plain_passes: int = 0


@dataclass(frozen=True, slots=True)
class LedRound:
    """A round led by the verifier: its draft and its verdict; without draft tokens a plain round.

    num_draft_tokens were requested, 0 for a plain round; rounds_left is what is left of the grant
    beside the round under way by now; the draft was waited for draft_us microseconds. ran_ahead
    is true where the next draft was requested meanwhile, hit where it was for this outcome.
    """

    block: DraftBlock
    verdict: Verdict
    num_draft_tokens: int
    rounds_left: int
    draft_us: int = 0
    ran_ahead: bool = False
    hit: bool = False


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """No round is under way; seq is that of the newest grant that had come in."""

    seq: int
    fault: LeaseFault = LeaseFault.NONE
