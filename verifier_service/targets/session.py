"""One session's state on a verifier: its committed prefix, how much of it has KV, its round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from foredraft.decoding.prefix import extend_hash
from foredraft.decoding.tree import branch, explicit, is_path
from foredraft.messages import Round, Verdict
from foredraft.types import TokenLogprobs
from verifier_service.models.port import Segment
from verifier_service.rules.logits import LogitsProcessors
from verifier_service.rules.logprobs import token_logprobs
from verifier_service.rules.rules import Logits, Rule
from verifier_service.rules.sampling import RowSampling
from verifier_service.schedule.batching import PendingRows, ScheduledRows
from verifier_service.schedule.calibration import Calibration
from verifier_service.schedule.pricing import Offer
from verifier_service.targets.features import FeatureLog
from verifier_service.targets.pending import NextPlain, Pending
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

    @property
    def tokens_left(self) -> int:
        """How many tokens may still be committed."""
        return self.commit_limit - len(self.tokens)

    @property
    def has_ended(self) -> bool:
        """Whether the text has all its tokens, or ends with a stop token."""
        return self.tokens_left == 0 or self.tokens[-1] in self.stop_token_ids

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
        return self.pending.rows_ahead(self.self_draft, drafted, self.tokens_left)

    def num_prompt_rows(self, rows: ScheduledRows) -> int:
        """Return how many of the rows before those give logprobs of the prefix."""
        return 0 if self.prompt_logprobs is None else rows.rows - self.num_round_rows(rows)

    def collect_prompt_logprobs(self, raw: Logits) -> None:
        """Store the logprobs of the prefix's next tokens, from the rows before each."""
        assert self.prompt_logprobs is not None
        tokens = self.tokens[self.cached + 1 :][: len(raw)]
        self.prompt_logprobs += self.logprobs_of(raw, range(len(raw)), tokens)

    def draws(self) -> list[RowSampling]:
        """Return how each row of the round is sampled."""
        assert self.pending is not None
        return [*self.rule.draws(self.pending.round, len(self.tokens)), *self.draws_ahead()]

    def draws_ahead(self) -> list[RowSampling]:
        """Return how each row ahead is sampled."""
        first = len(self.tokens) + 1
        return [self.rule.draw(at) for at in range(first, first + self.rows_ahead)]

    def branches(self) -> list[Sequence[int]]:
        """Return for each row of the round its tokens after the committed ones."""
        assert self.pending is not None
        draft = self.pending.round.draft
        nodes, parents = range(len(draft)), explicit(self.pending.round.parents, len(draft))
        ahead: list[Sequence[int]] = [()] * self.rows_ahead
        return [(), *([draft[at] for at in branch(parents, node)] for node in nodes), *ahead]

    def logprobs_of(
        self, raw: Logits, rows: Sequence[int], tokens: Sequence[int]
    ) -> list[TokenLogprobs]:
        """Return the logprobs of tokens, each from its row; nothing if not requested."""
        count = self.logprobs
        if count is None:
            return []
        pairs = zip(rows, tokens, strict=True)
        return [token_logprobs(raw[row], token, count) for row, token in pairs]

    def extend(self, tokens: Sequence[int]) -> None:
        """Commit tokens."""
        self.tokens.extend(tokens)
        self.processors.extend(tokens)
        self.prefix_hash = extend_hash(self.prefix_hash, tokens)
        self.self_draft.extend(tokens)
