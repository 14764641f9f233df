"""One session's state on a verifier: its committed prefix, how much of it has KV, its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import branch, explicit, is_path
from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import Round, Verdict
from foredraft.types import NO_PRICE, Base, Price, Timings, TokenLogprobs
from verifier_service.models.port import Segment
from verifier_service.rules.logits import LogitsProcessors
from verifier_service.rules.logprobs import token_logprobs
from verifier_service.rules.rules import Decision, Logits, Rule
from verifier_service.rules.sampling import RowSampling
from verifier_service.schedule.admission import check_round
from verifier_service.schedule.batching import PendingRows, ScheduledRows
from verifier_service.schedule.calibration import Calibration
from verifier_service.schedule.pricing import Offer
from verifier_service.targets.features import FeatureLog
from verifier_service.targets.pending import NextPlain, Pending, first_nodes
from verifier_service.targets.self_drafting import NoSelfDraft, SelfDraft
from verifier_service.targets.streams import Streams


@dataclass(slots=True)
class Session:
    """Invariant: KV rows [0, cached) belong to tokens[:cached], and the last token has none.

    The last token is the first row of the next forward pass.
    """

    session_id: str
    rule: Rule
    stop_token_ids: frozenset[int]
    max_draft: int
    commit_limit: int
    streams: Streams
    tokens: list[int]
    prefix_hash: int
    processors: LogitsProcessors
    # The time of passes after which a plain round ends, with at least a token.
    plain_round_s: float = inf
    self_draft: SelfDraft = field(default_factory=NoSelfDraft)
    # How many top logprobs accompany each committed token; None: no logprobs.
    logprobs: int | None = None
    # Those of the prefix, until the first verdict; None if not requested.
    prompt_logprobs: list[TokenLogprobs] | None = None
    # The target's features of the tokens; None if not requested.
    features: FeatureLog | None = None
    cached: int = 0
    # Tokens since the last verdict whose KV another session had computed.
    num_cached_from_others: int = 0
    pending: Pending | None = None
    # What follows the round in flight without being asked for.
    following: NextPlain | None = None
    accepted: Calibration = field(default_factory=Calibration)
    # The number of the last pass that it was part of, and whether its last round was drafted.
    last_pass: int = 0
    drafted: bool = False
    # Its KV is lost, and is computed again once a round arrives.
    preempted: bool = False
    last: tuple[Round, Verdict] | None = None

    def admit(
        self,
        request: Round,
        vocab_size: int,
        now: float,
        price: Price = NO_PRICE,
        following: NextPlain | None = None,
    ) -> Verdict | None:
        """Start a round; return the verdict again if it repeats the last one.

        A round that `go_on` began is claimed. Raise InvalidRequest or PrefixMismatch, leaving the
        session as it was.
        """
        if self.last is not None and self.last[0] == request:
            if self.pending is None:
                self.following = following
                self.go_on(now, price)
            return self.last[1]
        if self.pending is not None and not self.pending.claimed and self.pending.asked == request:
            self.pending.claimed, self.following = True, following
            return None
        if self.pending is not None:
            raise InvalidRequest("a round is in flight; rounds go one at a time", param="round")
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
        if len(self.tokens) + len(request.draft) + 1 > self.streams.length:
            raise InvalidRequest(
                f"prefix and draft exceed the text's {self.streams.length} tokens", param="draft"
            )
        self.preempted = False
        if request.no_features:
            self.features = None
        self._begin(request, now, price)
        self.following = following
        return None

    def go_on(self, now: float, price: Price) -> bool:
        """Begin the plain round that is wanted after the last one; return whether it is begun."""
        following, self.following = self.following, None
        if following is None or not following.wanted or self.last is None or self._has_ended:
            return False
        number = self.last[0].base.round + 1
        base = Base(self.session_id, number, len(self.tokens), self.prefix_hash)
        steps = min(MAX_PLAIN_STEPS, self._left)
        request = Round(base, (), steps, plain_passes=following.passes)
        self._begin(request, now, price).claimed = False
        following.begun = True
        return True

    def _begin(self, request: Round, now: float, price: Price) -> Pending:
        # The pass that reads the rest of a prefix has rows enough.
        left = 1 if self.needs_prefill else self._left
        room = self.streams.room(len(self.tokens))
        self.pending = Pending.of(request, now, self.self_draft, left, room, price)
        return self.pending

    @property
    def _left(self) -> int:
        """How many tokens may still be committed."""
        return self.commit_limit - len(self.tokens)

    @property
    def _has_ended(self) -> bool:
        return self._left == 0 or self.tokens[-1] in self.stop_token_ids

    def offer(self, key: int) -> Offer | None:
        """Return the draft tokens of which the verifier may choose, None if there is no choice."""
        expected = self.pending.offered.expected if self.pending else ()
        if not expected or not self.rule.divisible:
            return None
        # Its own drafts come as they were calibrated.
        scale = self.accepted.scale if self.offers_draft else 1.0
        most, wanted = 1.0, []
        for each in expected:
            # No token is likelier than one before it: so parents come first.
            most = min(most, scale * each)
            wanted.append(most)
        beside_s = 0.0 if self.offers_draft else self.self_draft.beside_s
        return Offer(key, wanted, self._rows_added(len(wanted)), beside_s)

    @property
    def offers_draft(self) -> bool:
        """Whether the round under way came with a draft."""
        return self.pending is not None and self.pending.drafted

    @property
    def num_offered(self) -> int:
        """How many draft tokens the round under way came with."""
        return len(self.pending.asked.draft) if self.pending else 0

    @property
    def num_bought(self) -> int:
        """How many draft tokens of the round under way the next pass verifies."""
        return self.pending.num_drafted if self.pending else 0

    def buy(self, count: int) -> None:
        """Verify so many of the offered draft tokens, the first ones."""
        assert self.pending is not None
        self.pending.buy(count)

    def pending_rows(self, key: int) -> PendingRows:
        """Return the rows that the session could add to the next forward pass."""
        uncached = len(self.tokens) - self.cached
        decide = 0 if self.pending is None else self._rows(self.pending.num_drafted)
        return PendingRows(key, uncached - 1 if self.needs_prefill else 0, decide)

    def _rows(self, drafted: int) -> int:
        """Return how many rows the round under way has with so many draft tokens."""
        uncached = len(self.tokens) - self.cached
        return self.streams.round_rows(uncached, drafted, self._ahead(drafted))

    def _rows_added(self, drafted: int) -> list[int]:
        """Return how many rows each token of the draft adds."""
        if self.offers_draft:
            return [self.streams.token_rows] * drafted
        rows = [self._rows(count) for count in range(1 + drafted)]
        return [more - less for less, more in pairwise(rows)]

    @property
    def undrafted_rows(self) -> int:
        """How many rows the round under way has without its draft."""
        return self._rows(0)

    @property
    def has_rows(self) -> bool:
        """Whether the next forward pass can read or decide something of the session."""
        return self.pending is not None or self.needs_prefill

    @property
    def needs_prefill(self) -> bool:
        """Whether tokens before the last still lack KV that they are to have ahead of a round."""
        ahead = self.streams.prefills and not self.preempted
        return ahead and self.cached + 1 < len(self.tokens)

    @property
    def shareable(self) -> Sequence[int]:
        """The tokens whose KV may come from another session: the rest needs its own rows."""
        if self.prompt_logprobs is not None:
            return ()
        return self.tokens if self.features is None else self.tokens[: self.features.num_sent]

    def reuse_prefix(self, end: int) -> None:
        """Count the tokens up to end as cached: another session computed their KV."""
        self.num_cached_from_others += end - self.cached
        self.cached = end

    def read(self, rows: int) -> None:
        """Count the next rows as cached."""
        if self.features is not None:
            self.features.keep(range(rows))
        self.cached += rows

    def drop_kv(self) -> None:
        """Forget all KV; prefill starts again with the next round."""
        self.cached = 0
        self.preempted = self.pending is None
        if self.prompt_logprobs is not None:
            self.prompt_logprobs = []
        if self.features is not None:
            self.features.drop_kv()

    def segment(self, rows: ScheduledRows, blocks: Sequence[int]) -> Segment:
        """Return scheduled rows as the model takes them; blocks are its KV blocks."""
        prompt = self.num_prompt_rows(rows)
        if not rows.decides:
            end = self.cached + rows.rows
            return Segment(blocks, self.cached, self.tokens[self.cached : end], prompt)
        assert self.pending is not None
        draft, parents = self.pending.round.draft, self.pending.round.parents
        tokens = [*self.tokens[self.cached :], *draft]
        tree = () if is_path(parents) else parents
        wanted = prompt + self.num_round_rows(rows)
        content = Segment(blocks, self.cached, tokens, wanted, tree)
        return self.streams.rows(content, len(draft), self.rows_ahead)

    def num_round_rows(self, rows: ScheduledRows) -> int:
        """Return how many of the wanted rows, the last ones, are the round's, those ahead too."""
        if not rows.decides or self.pending is None:
            return 0
        return 1 + self.pending.num_drafted + self.rows_ahead

    @property
    def rows_ahead(self) -> int:
        """How many rows the next pass has ahead of the session's own draft."""
        return self._ahead(self.pending.num_drafted) if self.pending else 0

    def _ahead(self, drafted: int) -> int:
        assert self.pending is not None
        return self.pending.rows_ahead(self.self_draft, drafted, self._left)

    def num_prompt_rows(self, rows: ScheduledRows) -> int:
        """Return how many of the rows before those give logprobs of the prefix."""
        return 0 if self.prompt_logprobs is None else rows.rows - self.num_round_rows(rows)

    def collect_prompt_logprobs(self, raw: Logits) -> None:
        """Store the logprobs of the prefix's next tokens, from the rows before each."""
        assert self.prompt_logprobs is not None
        tokens = self.tokens[self.cached + 1 :][: len(raw)]
        self.prompt_logprobs += self._logprobs_of(raw, range(len(raw)), tokens)

    def draws(self) -> list[RowSampling]:
        """Return how each row of the round is sampled."""
        assert self.pending is not None
        return [*self.rule.draws(self.pending.round, len(self.tokens)), *self._draws_ahead()]

    def _draws_ahead(self) -> list[RowSampling]:
        first = len(self.tokens) + 1
        return [self.rule.draw(at) for at in range(first, first + self.rows_ahead)]

    def branches(self) -> list[Sequence[int]]:
        """Return for each row of the round its tokens after the committed ones."""
        assert self.pending is not None
        draft = self.pending.round.draft
        nodes, parents = range(len(draft)), explicit(self.pending.round.parents, len(draft))
        ahead: list[Sequence[int]] = [()] * self.rows_ahead
        return [(), *([draft[at] for at in branch(parents, node)] for node in nodes), *ahead]

    def accept(self, chosen: Sequence[int], logits: Logits) -> Decision:
        """Return the rule's decision on the round's rows, given the token drawn in each.

        The draft's nodes without a row are left out: none stands before its parent.
        """
        assert self.pending is not None
        pending, request = self.pending, self.pending.round
        rows = min(len(chosen), 1 + len(request.draft))
        if rows - 1 < len(request.draft):
            request = first_nodes(request, rows - 1)
        decision = self.rule.decide(request, len(self.tokens), chosen[:rows], logits[:rows])
        if not pending.drafted:
            decision = self._until_stop(decision)
            self._learn(decision, rows, logits)
        return decision

    def _until_stop(self, decision: Decision) -> Decision:
        """Return a decision on the own draft without what follows its first stop token."""
        assert self.pending is not None
        draft = self.pending.round.draft
        for place, node in enumerate(decision.path):
            if draft[node] in self.stop_token_ids:
                return Decision(decision.path[:place], draft[node])
        return decision

    def _learn(self, decision: Decision, rows: int, logits: Logits) -> None:
        """Give the own draft what was decided, and the rows ahead."""
        assert self.pending is not None
        draft, ahead = self.pending.round.draft, logits[rows:]
        tokens = [*(draft[node] for node in decision.path), decision.token]
        draws = self._draws_ahead()[: len(ahead)] if len(ahead) else ()
        self.self_draft.decided(rows - 1, tokens, ahead, draws)

    def commit(
        self, decision: Decision, batch_rows: int, raw: Logits, price: Price = NO_PRICE
    ) -> Verdict | None:
        """Commit a decision; return the verdict once the round is complete.

        raw are the model's own logits of the round's rows. Where the path is not the draft's first
        nodes, KV rows first + path[i] now belong at first + i, where first was the number of tokens
        before.
        """
        assert self.pending is not None
        pending, draft = self.pending, self.pending.round.draft
        path, token = decision
        tokens = [*(draft[node] for node in path), token]
        pending.logprobs += self._logprobs_of(raw, [0, *(1 + node for node in path)], tokens)
        plain_tokens = 0
        if pending.drafted:
            plain_tokens = 1 + self.self_draft.foreseen(tokens, price)
        if self.features is not None:
            fed = len(self.tokens) - self.cached
            self.features.keep([*range(fed), *(fed + node for node in path)])
        self._extend(tokens)
        self.cached = len(self.tokens) - 1
        pending.passes += 1
        if pending.drafted:
            pending.emitted.append(token)
            self.accepted = self.accepted.after(pending.round.expected, len(path))
            return self._finish_round(path, batch_rows, price, plain_tokens)
        pending.emitted += tokens
        if not self._continues(pending, token, price):
            return self._finish_round((), batch_rows, price)
        room = self.streams.room(len(self.tokens))
        pending.draft_itself(self.self_draft, self._left, room, price)
        return None

    def _logprobs_of(
        self, raw: Logits, rows: Sequence[int], tokens: Sequence[int]
    ) -> list[TokenLogprobs]:
        """Return the logprobs of tokens, each from its row; nothing if not requested."""
        count = self.logprobs
        if count is None:
            return []
        pairs = zip(rows, tokens, strict=True)
        return [token_logprobs(raw[row], token, count) for row, token in pairs]

    def _extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)
        self.processors.extend(tokens)
        self.prefix_hash = extend_hash(self.prefix_hash, tokens)
        self.self_draft.extend(tokens)

    def _finish_round(
        self, path: tuple[int, ...], batch_rows: int, price: Price, plain_tokens: int = 0
    ) -> Verdict:
        """End the round in flight; return its verdict, with path as the accepted nodes."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        started = pending.arrived if pending.started is None else pending.started
        timings = Timings(
            queue_us=int(1e6 * (started - pending.arrived)),
            compute_us=int(1e6 * pending.compute_s),
            batch_rows=batch_rows,
            passes=pending.passes,
        )
        moved = () if path == tuple(range(len(path))) else path
        verdict = Verdict(
            pending.asked.base,
            len(path),
            tuple(pending.emitted),
            timings,
            moved,
            tuple(pending.logprobs),
            tuple(self.prompt_logprobs or ()),
            b"" if self.features is None else self.features.take(len(self.tokens) - 1),
            self.num_cached_from_others,
            len(pending.asked.draft) - pending.num_drafted if pending.drafted else 0,
            price,
            plain_tokens,
        )
        self.prompt_logprobs, self.num_cached_from_others = None, 0
        self.last = (pending.asked, verdict)
        self.drafted = pending.drafted
        return verdict

    def _continues(self, pending: Pending, token: int, price: Price) -> bool:
        """True while a plain round has steps, time and a place left, and no stop token."""
        return (
            len(pending.emitted) < pending.asked.plain_steps
            and not pending.took_its_passes(price.pass_s)
            and pending.compute_s < self.plain_round_s
            and token not in self.stop_token_ids
            and len(self.tokens) < self.commit_limit
        )
