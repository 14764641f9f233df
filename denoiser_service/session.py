"""One session's state on a denoiser: its committed blocks, the current one, what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from denoiser_service.core.draws import Logits
from denoiser_service.core.next import Next, Rule
from denoiser_service.core.port import Drafting, Guess
from denoiser_service.core.ranks import Anchor
from denoiser_service.core.text import Text
from denoiser_service.core.walk import Walk, worth_evaluating
from denoiser_service.schedule import Wanted
from foredraft import limits
from foredraft.decoding.block_state import State, hash_state, is_full, opened
from foredraft.decoding.prefix import extend_hash, hash_prefix
from foredraft.denoising import Advance, Advanced, DenoiseOpen
from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.types import Timings
from verifier_service.schedule.calibration import Calibration


@dataclass(slots=True)
class Pending:
    """An advance in flight: its arrival, the start of its first call, what was done so far."""

    request: Advance
    arrived: float
    started: float | None = None
    compute_s: float = 0.0
    rows: int = 0
    calls: int = 0
    steps: int = 0
    committed: list[int] = field(default_factory=list)


class Session:
    """Invariant: KV rows [0, cached) are of tokens[:cached], whole blocks; the state is not full.

    After the text's end there is no state any more.
    """

    def __init__(
        self,
        request: DenoiseOpen,
        rule: Rule,
        drafting: Drafting,
        block_length: int,
        vocab: int,
        has_room: Callable[[int, int], bool],
    ) -> None:
        """has_room(start, rows) is whether a draft may have so many rows from a position on."""
        self.rule = rule
        self.pending: Pending | None = None
        self.cached = 0
        self._session_id = request.session_id
        self._max_drafts, self._drafting = request.max_drafts, drafting
        self._block_length, self._vocab = block_length, vocab
        self._has_room = has_room
        stops = frozenset(request.stop_token_ids)
        self._text = Text(request.prefix, request.max_new_tokens, stops)
        start = len(request.prefix) - len(request.prefix) % block_length
        self.tokens = list(request.prefix[:start])
        self.state: State = opened(request.prefix[start:], block_length)
        self._hash = hash_prefix(self.tokens)
        # The logits of the state before, from which drafts are made, and what they led to: a
        # block's first has none.
        self._before: tuple[Logits, Next] | None = None
        # The drafts of the next call, of which the first ones are bought, and how far earlier ones
        # came true.
        self._offered: list[Guess] = []
        self._bought = 0
        self._accepted = Calibration()
        self._last: tuple[Advance, Advanced] | None = None

    @property
    def start(self) -> int:
        """The first position of the current block."""
        return len(self.tokens)

    @property
    def unread(self) -> int:
        """Rows of the committed blocks that have no KV and need it."""
        return 0 if self.has_ended else len(self.tokens) - self.cached

    @property
    def has_ended(self) -> bool:
        """Whether more tokens would change nothing."""
        return not self.state

    def admit(self, request: Advance, now: float) -> Advanced | None:
        """Start an advance; return the answer again if it repeats the last one.

        Raise InvalidRequest or PrefixMismatch, leaving the session as it was.
        """
        if self._last is not None and self._last[0] == request:
            return self._last[1]
        if self.pending is not None:
            raise InvalidRequest("an advance is in flight; they go one at a time", param="advance")
        limits.check_range("calls", request.calls, 1, limits.MAX_CALLS)
        if self.has_ended:
            raise InvalidRequest("the text has ended", param="advance")
        base, number = request.base, self.start // self._block_length
        held = (self._session_id, self.start, hash_state(self._hash, number, self.state))
        if (base.session_id, base.prefix_len, base.prefix_hash) != held:
            raise PrefixMismatch("base is not the state of the session's block", param="base")
        self.pending = Pending(request, now)
        return None

    @property
    def may_draft(self) -> bool:
        """Whether the next call may have drafts."""
        return self._before is not None and self._max_drafts > 0

    @property
    def hope(self) -> float:
        """A chance that no draft will much exceed, before any is made: the surest token's."""
        surest = -math.inf if self._before is None else self._before[1].surest
        return min(1.0, self._accepted.scale * math.exp(surest))

    def offer(self, least: float = 0.0) -> list[float]:
        """Draft states, and return each one's chance to be come to, none likelier than before; none
        is of use below the least.
        """
        assert self._before is not None
        logits, last = self._before
        full = self._has_room(self.start, 2 * self._block_length)
        least /= self._accepted.scale
        drafts = self._drafting(
            Anchor(self.state, logits, self.start, last.normalisers, last.peaks, full, least)
        )
        worth = worth_evaluating(
            self.state, drafts, self._vocab, lambda state: full and self._goes_on(state)
        )
        self._offered = worth[: self._max_drafts]
        most, chances = 1.0, []
        for guess in self._offered:
            most = min(most, self._accepted.scale * guess.chance)
            chances.append(most)
        return chances

    def _goes_on(self, full: State) -> bool:
        return not self._text.is_done([*self.tokens, *full])

    @property
    def draft_rows(self) -> list[int]:
        """How many rows each offered draft adds to a call: a full one is read first."""
        length = self._block_length
        return [length * (1 + is_full(guess.state)) for guess in self._offered]

    def buy(self, count: int) -> None:
        """Have so many of the drafts evaluated, the first ones."""
        self._bought = count

    def wanted(self, key: int) -> Wanted:
        """Return what the session could do in a call."""
        if self.pending is None:
            return Wanted(key, self.unread, ())
        drafts = self.draft_rows[: self._bought] if self.may_draft else ()
        return Wanted(key, self.unread, (self._block_length, *drafts))

    def states(self, most: int) -> list[State]:
        """Return the current state and the bought drafts, at most so many: none for 0."""
        drafts = self._offered[: self._bought] if self.may_draft else []
        self._offered = drafts[: max(0, most - 1)]
        return [self.state, *(guess.state for guess in self._offered)][:most]

    def took(self, started: float, seconds: float, rows: int) -> None:
        """Add a call's time and rows to the advance in flight."""
        assert self.pending is not None
        if self.pending.started is None:
            self.pending.started = started
        self.pending.compute_s += seconds
        self.pending.rows += rows

    def called(self, accepted: int) -> None:
        """Count a call in which so many drafts came true, of those that it had."""
        assert self.pending is not None
        self.pending.calls += 1
        chances = [guess.chance for guess in self._offered]
        self._accepted = self._accepted.after(chances, accepted)
        self._offered = []

    def walked(self, walk: Walk) -> None:
        """Go on to the state that a walk led to, or to the next block once that is full."""
        assert self.pending is not None
        self.pending.steps += len(walk.states)
        self.state, self._before = walk.states[-1], (walk.logits[-1], walk.last)
        if is_full(self.state):
            self.tokens += self.state
            self._hash = extend_hash(self._hash, self.state)
            self.pending.committed += self.state
            self._before = None
            done = self._text.is_done(self.tokens)
            self.state = () if done else opened((), self._block_length)

    def answer(self) -> Advanced | None:
        """Return the answer of the advance if its last call was made; it is in flight no more."""
        pending = self.pending
        assert pending is not None
        if pending.calls < pending.request.calls and not self.has_ended:
            return None
        started = pending.arrived if pending.started is None else pending.started
        advanced = Advanced(
            base=pending.request.base,
            committed=tuple(pending.committed),
            block=self.state,
            steps=pending.steps,
            accepted=pending.steps - pending.calls,
            calls=pending.calls,
            timings=Timings(
                int(1e6 * (started - pending.arrived)), int(1e6 * pending.compute_s), pending.rows
            ),
        )
        self._last, self.pending = (pending.request, advanced), None
        return advanced
