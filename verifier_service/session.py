"""One session's state on a verifier: its committed prefix, how much of it has KV, its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft import limits
from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.prefix import extend_hash
from foredraft.tree import check_parents, is_path
from foredraft.types import Round, Timings, Verdict
from verifier_service.core.batching import Share, Work
from verifier_service.core.rules import Decision, Logits, Rule
from verifier_service.core.sampling import Draw
from verifier_service.model.port import Segment


@dataclass(slots=True)
class Pending:
    """A round under way: when it arrived, when its first forward began, what it cost so far."""

    round: Round
    arrived: float
    started: float | None = None
    compute_s: float = 0.0
    emitted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """Invariant: KV rows [0, cached) belong to tokens[:cached], and cached < len(tokens).

    The last token has no KV between rounds: it is the first row of the next one.
    """

    session_id: str
    slot: int
    rule: Rule
    stop_token_ids: frozenset[int]
    max_draft: int
    commit_limit: int
    max_len: int
    tokens: list[int]
    prefix_hash: int
    cached: int = 0
    pending: Pending | None = None
    last: tuple[Round, Verdict] | None = None

    def admit(self, request: Round, vocab_size: int, now: float) -> Verdict | None:
        """Make request the round under way; a repeated one is answered with its verdict at once.

        Raise InvalidRequest or PrefixMismatch, leaving the session as it was.
        """
        if self.last is not None and self.last[0] == request:
            return self.last[1]
        if self.pending is not None:
            raise InvalidRequest("a round is under way; rounds go one at a time", param="round")
        base = request.base
        if base.session_id != self.session_id:
            raise InvalidRequest("base names another session", param="base.session_id")
        if (base.prefix_len, base.prefix_hash) != (len(self.tokens), self.prefix_hash):
            raise PrefixMismatch(
                f"base is a prefix of {base.prefix_len} tokens; "
                f"this session holds another one, of {len(self.tokens)}",
                param="base",
            )
        check_parents("parents", request.parents, len(request.draft))
        limits.check_tokens("draft", request.draft, vocab_size)
        limits.check_range("draft length", len(request.draft), 0, self.max_draft)
        limits.check_candidates("q", request.q, request.draft)
        for candidates in request.q:
            limits.check_tokens("q", candidates.tokens, vocab_size)
        if not (self.rule.trees or is_path(request.parents)):
            raise InvalidRequest("only the acceptance rule coupled verifies trees", param="parents")
        if not request.draft:
            limits.check_range("plain_steps", request.plain_steps, 1, limits.MAX_PLAIN_STEPS)
        if len(self.tokens) >= self.commit_limit:
            raise InvalidRequest("max_new_tokens are committed already", param="max_new_tokens")
        if len(self.tokens) + len(request.draft) + 1 > self.max_len:
            raise InvalidRequest(
                f"prefix and draft exceed the model's {self.max_len} tokens", param="draft"
            )
        self.pending = Pending(request, now)
        return None

    def work(self, key: int) -> Work:
        """Return the rows that the session could feed now."""
        decide = 1 + len(self.pending.round.draft) if self.pending else 0
        return Work(key, len(self.tokens) - 1 - self.cached, decide)

    def segment(self, share: Share) -> Segment:
        """Return the rows of a share as the model takes them."""
        if not share.decides:
            end = self.cached + share.rows
            return Segment(self.slot, self.cached, self.tokens[self.cached : end], 0)
        assert self.pending is not None
        draft, parents = self.pending.round.draft, self.pending.round.parents
        rows = [*self.tokens[self.cached :], *draft]
        tree = () if is_path(parents) else parents
        return Segment(self.slot, self.cached, rows, 1 + len(draft), tree)

    def draws(self) -> list[Draw]:
        """Return how each deciding row of the round under way is drawn."""
        assert self.pending is not None
        return self.rule.draws(self.pending.round, len(self.tokens))

    def judge(self, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return what the rule makes of the deciding rows, given the token drawn in each."""
        assert self.pending is not None
        return self.rule.decide(self.pending.round, len(self.tokens), chosen, logits)

    def commit(self, decision: Decision, batch_rows: int) -> Verdict | None:
        """Commit what was decided; return the verdict once the round is complete.

        Where it has a path, KV rows base.prefix_len + path[i] now belong at base.prefix_len + i.
        """
        assert self.pending is not None
        pending, draft = self.pending, self.pending.round.draft
        path, token = decision
        kept = (*(draft[node] for node in path), token)
        self.tokens.extend(kept)
        self.prefix_hash = extend_hash(self.prefix_hash, kept)
        self.cached = len(self.tokens) - 1
        pending.emitted.append(token)
        if not draft and self._goes_on(pending, token):
            return None
        timings = Timings(
            queue_us=int(1e6 * ((pending.started or pending.arrived) - pending.arrived)),
            compute_us=int(1e6 * pending.compute_s),
            batch_rows=batch_rows,
        )
        moved = () if path == tuple(range(len(path))) else path
        verdict = Verdict(pending.round.base, len(path), tuple(pending.emitted), timings, moved)
        self.last = (pending.round, verdict)
        self.pending = None
        return verdict

    def _goes_on(self, pending: Pending, token: int) -> bool:
        """True while a plain round has steps left, a place for them, and no stop token."""
        return (
            len(pending.emitted) < pending.round.plain_steps
            and token not in self.stop_token_ids
            and len(self.tokens) < self.commit_limit
        )
