"""One session's state on a verifier: its committed prefix, how much of it has KV, its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import branch, explicit, is_path
from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.types import Round, Timings, TokenLogprobs, Verdict
from verifier_service.models.port import Segment
from verifier_service.rules.logits import Shaper
from verifier_service.rules.logprobs import token_logprobs
from verifier_service.rules.rules import Decision, Logits, Rule
from verifier_service.rules.sampling import Draw
from verifier_service.schedule.admission import check_round
from verifier_service.schedule.batching import Share, Work
from verifier_service.targets.features import FeatureLog


@dataclass(slots=True)
class Pending:
    """A round under way: when it arrived, when its first forward began, what it cost so far."""

    round: Round
    arrived: float
    started: float | None = None
    compute_s: float = 0.0
    emitted: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """Invariant: KV rows [0, cached) belong to tokens[:cached], and the last token has none.

    It is the first row of the next forward. logprobs is how many likely tokens to tell of beside
    each committed one, None if nothing is asked. heard are those of the prefix's tokens, until the
    first verdict; None if not asked. features are those of the text, as passes tell them; None if
    not asked. adopted counts the tokens that another session read, since the last verdict.
    A dormant session has lost its KV and waits for its next round.
    """

    session_id: str
    rule: Rule
    stop_token_ids: frozenset[int]
    max_draft: int
    commit_limit: int
    max_len: int
    tokens: list[int]
    prefix_hash: int
    shaper: Shaper
    logprobs: int | None = None
    heard: list[TokenLogprobs] | None = None
    features: FeatureLog | None = None
    cached: int = 0
    adopted: int = 0
    pending: Pending | None = None
    dormant: bool = False
    last: tuple[Round, Verdict] | None = None

    def admit(self, request: Round, vocab_size: int, now: float) -> Verdict | None:
        """Make request the round under way; one that was answered ends at once.

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
        check_round(request, vocab_size, self.max_draft, self.rule.trees)
        if len(self.tokens) >= self.commit_limit:
            raise InvalidRequest("max_new_tokens are committed already", param="max_new_tokens")
        if len(self.tokens) + len(request.draft) + 1 > self.max_len:
            raise InvalidRequest(
                f"prefix and draft exceed the model's {self.max_len} tokens", param="draft"
            )
        self.dormant = False
        self.pending = Pending(request, now)
        return None

    def work(self, key: int) -> Work:
        """Return the rows that the session could feed now."""
        decide = 1 + len(self.pending.round.draft) if self.pending else 0
        return Work(key, len(self.tokens) - 1 - self.cached if self.unread else 0, decide)

    @property
    def unread(self) -> bool:
        """Whether tokens before the last have no KV yet, and are to have it."""
        return not self.dormant and self.cached + 1 < len(self.tokens)

    @property
    def shareable(self) -> Sequence[int]:
        """The tokens whose KV another session may have computed: of the rest, the passes tell."""
        if self.heard is not None:
            return ()
        return self.tokens if self.features is None else self.tokens[: self.features.told]

    def take_over(self, end: int) -> None:
        """Take note that KV of the text up to end is there, what was lacking read by another."""
        self.adopted += end - self.cached
        self.cached = end

    def read(self, rows: int) -> None:
        """Take note that the next rows of the text have KV now."""
        if self.features is not None:
            self.features.keep(range(rows))
        self.cached += rows

    def forget(self) -> None:
        """Start anew without KV: the text is read again, once a round asks for it."""
        self.cached = 0
        self.dormant = self.pending is None
        if self.heard is not None:
            self.heard = []
        if self.features is not None:
            self.features.forget()

    def segment(self, share: Share, blocks: Sequence[int]) -> Segment:
        """Return the rows of a share as the model takes them; blocks are where its KV lies."""
        if not share.decides:
            end = self.cached + share.rows
            return Segment(blocks, self.cached, self.tokens[self.cached : end], self.heeded(share))
        assert self.pending is not None
        draft, parents = self.pending.round.draft, self.pending.round.parents
        rows = [*self.tokens[self.cached :], *draft]
        tree = () if is_path(parents) else parents
        return Segment(blocks, self.cached, rows, self.heeded(share) + self.deciding(share), tree)

    def deciding(self, share: Share) -> int:
        """Return how many of a share's rows, its last ones, decide the round."""
        return 1 + len(self.pending.round.draft) if share.decides and self.pending else 0

    def heeded(self, share: Share) -> int:
        """Return how many rows, before those, tell of the prefix's tokens."""
        return 0 if self.heard is None else share.rows - self.deciding(share)

    def hear(self, raw: Logits) -> None:
        """Take note of what the heeded rows' logits say of the tokens after each."""
        assert self.heard is not None
        after = self.tokens[self.cached + 1 :][: len(raw)]
        self.heard += self._told(raw, range(len(raw)), after)

    def draws(self) -> list[Draw]:
        """Return how each deciding row of the round under way is drawn."""
        assert self.pending is not None
        return self.rule.draws(self.pending.round, len(self.tokens))

    def branches(self) -> list[Sequence[int]]:
        """Return for each deciding row what the text before it has beyond the committed tokens."""
        assert self.pending is not None
        draft = self.pending.round.draft
        nodes, parents = range(len(draft)), explicit(self.pending.round.parents, len(draft))
        return [(), *([draft[at] for at in branch(parents, node)] for node in nodes)]

    def judge(self, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return what the rule makes of the deciding rows, given the token drawn in each.

        Nodes of the draft without a row are left out: none stands before its parent.
        """
        assert self.pending is not None
        asked, n = self.pending.round, len(chosen) - 1
        if n < len(asked.draft):
            asked = replace(asked, draft=asked.draft[:n], parents=asked.parents[:n], q=asked.q[:n])
        return self.rule.decide(asked, len(self.tokens), chosen, logits)

    def commit(self, decision: Decision, batch_rows: int, raw: Logits) -> Verdict | None:
        """Commit what was decided; return the verdict once the round is complete.

        raw are the deciding rows' logits as the model gave them.
        Where the path is not the draft's first nodes, KV rows first + path[i] now belong at
        first + i, where first was the number of tokens before.
        """
        assert self.pending is not None
        pending, draft = self.pending, self.pending.round.draft
        path, token = decision
        tokens = [*(draft[node] for node in path), token]
        pending.logprobs += self._told(raw, [0, *(1 + node for node in path)], tokens)
        if self.features is not None:
            fed = len(self.tokens) - self.cached
            self.features.keep([*range(fed), *(fed + node for node in path)])
        self._extend(tokens)
        self.cached = len(self.tokens) - 1
        pending.emitted.append(token)
        if not pending.round.draft and self._goes_on(pending, token):
            return None
        return self._answer(path, batch_rows)

    def _told(self, raw: Logits, rows: Sequence[int], tokens: Sequence[int]) -> list[TokenLogprobs]:
        """Return what is to be told of tokens, each chosen in its row; nothing if not asked."""
        count = self.logprobs
        if count is None:
            return []
        pairs = zip(rows, tokens, strict=True)
        return [token_logprobs(raw[row], token, count) for row, token in pairs]

    def _extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)
        self.shaper.extend(tokens)
        self.prefix_hash = extend_hash(self.prefix_hash, tokens)

    def _answer(self, path: tuple[int, ...], batch_rows: int) -> Verdict:
        """End the round under way with the verdict that path was kept of its draft."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        started = pending.arrived if pending.started is None else pending.started
        timings = Timings(
            queue_us=int(1e6 * (started - pending.arrived)),
            compute_us=int(1e6 * pending.compute_s),
            batch_rows=batch_rows,
        )
        moved = () if path == tuple(range(len(path))) else path
        verdict = Verdict(
            pending.round.base,
            len(path),
            tuple(pending.emitted),
            timings,
            moved,
            tuple(pending.logprobs),
            tuple(self.heard or ()),
            b"" if self.features is None else self.features.tell(len(self.tokens) - 1),
            self.adopted,
        )
        self.heard, self.adopted = None, 0
        self.last = (pending.round, verdict)
        return verdict

    def _goes_on(self, pending: Pending, token: int) -> bool:
        """True while a plain round has steps left, a place for them, and no stop token."""
        return (
            len(pending.emitted) < pending.round.plain_steps
            and token not in self.stop_token_ids
            and len(self.tokens) < self.commit_limit
        )
