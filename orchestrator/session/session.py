"""One request's decoding state: what is committed, what is requested, what to do next. Sans-I/O.

The session owns the committed tokens and decides which messages count. Its driver reports what
happened (a draft arrived, a verdict arrived, a peer was lost) and asks what to send, as values.
Messages may be lost, repeated, reordered or late: every rule compares bases, so none of that can
change the committed tokens. Nothing here reads a clock or does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.decoding.draft_planner import DraftPlanner, NgramDraft
from foredraft.decoding.drafter_view import DrafterView
from foredraft.decoding.outcomes import Purchases, outcomes_of, predict
from foredraft.errors import CorruptModelOutput, Unavailable
from foredraft.lease import LedRound
from foredraft.limits import MAX_PLAIN_STEPS, MAX_PREFIX, check_range
from foredraft.messages import (
    DraftBlock,
    DraftOpen,
    DraftOpened,
    Propose,
    ProposeAhead,
    Round,
    Verdict,
    VerifyOpen,
)
from foredraft.ngram.params import NgramParams
from foredraft.types import (
    NGRAM,
    Acceptance,
    Base,
    DraftParams,
    FinishReason,
    ModelInfo,
    Proposal,
    Timings,
)
from orchestrator.request import GenerationRequest
from orchestrator.session.commit import Ending, Step, check, check_logprobs, commit, observed
from orchestrator.session.compatibility import same_target, why_incompatible
from orchestrator.session.drafts import Arrived, Draft, DraftBuffer, is_readable, whole_draft
from orchestrator.session.features import FeatureRelay
from orchestrator.session.open_messages import draft_open, verify_open

# The wire's token ids, while the target is not known yet.
MAX_VOCAB = 1 << 32
SIMPLE = DraftParams()


class Session:
    """The state machine of one request. At most one round is in flight.

    features names those that its drafter is expected to read, store the tensor store that it is
    expected to have; if it reads others, or from another, that costs time.
    ngram is how draft trees are made of the text's own n-grams, None if they are not.
    """

    def __init__(
        self,
        request: GenerationRequest,
        features: str = "",
        ngram: NgramParams | None = None,
        store: str = "",
    ) -> None:
        check_range("prompt length", len(request.prompt), 1, MAX_PREFIX)
        check_range("max_new_tokens", request.max_new_tokens, 1, MAX_PREFIX)
        self._request = request
        self._ngram = ngram
        self._stop_ids = frozenset(request.stop_token_ids)
        self._prefix = CommittedPrefix(request.prompt)
        self._end = len(request.prompt) + request.max_new_tokens
        self._features = FeatureRelay(features, self._end, store)
        self._round = 0
        self._in_flight: Round | None = None
        self._verifying: Draft | None = None
        # The bases that drafts were requested for ahead of the verdict in flight.
        self._ahead: frozenset[Base] = frozenset()
        self._purchases = Purchases()
        self._drafts = DraftBuffer(self._prefix)
        self._target: ModelInfo | None = None
        self._view: DrafterView | None = None
        self._opening_len = 0
        # Whether a verdict on a draft has come: a verifier opened later has to know.
        self._drafted = False
        self._prompt_logprobs_due = request.prompt_logprobs
        self.finish: FinishReason | None = None

    # What is known.

    @property
    def generated(self) -> tuple[int, ...]:
        """The committed tokens after the prompt."""
        return self._prefix.generated

    @property
    def tokens_left(self) -> int:
        """The number of tokens that may still be committed."""
        return self._end - len(self._prefix)

    @property
    def base(self) -> Base:
        """The committed prefix, as the base of the next round."""
        return self._prefix.base(self._request.session_id, self._round)

    @property
    def mismatch(self) -> str | None:
        """Why the drafter cannot serve this target, None while there is no reason."""
        if self._view is None or self._target is None:
            return None
        return why_incompatible(self._view.opened.model, self._target) or self._features.fault

    @property
    def allows_lease(self) -> bool:
        """Whether a verifier can ask the drafter itself: it has all features that are read, and
        leaves out no tokens beyond the target's. True before the target is known.
        """
        if self._view is None:
            return False
        drafter = self._view.opened.model
        return drafter.vocab_size <= self._vocab_size and self._features.at_verifier

    @property
    def reads_features(self) -> bool:
        """Whether the drafter reads features of the target: without them it reads no text."""
        return self._features.reads

    @property
    def features_due(self) -> bool:
        """Whether opening the verifier again would bring features that the drafter needs."""
        return self._features.due

    def end_features(self) -> bool:
        """Have the verifier compute no more features; return whether it did until now."""
        read = self._features.reads
        if read:
            self._features.end()
        return read

    def rows_to_restart(self, features: str) -> int:
        """Return how many tokens the verifier reads again for a drafter that reads features."""
        return len(self._prefix) if self._features.lacks(features) else 0

    def could_serve(self, request: Propose | ProposeAhead) -> bool:
        """Return whether an answer to request may be a draft for the committed prefix."""
        if isinstance(request, Propose):
            return self._prefix.starts_with(request.base)
        return any(self._prefix.starts_with(each.base) for each in outcomes_of(request))

    # The verifier.

    def verify_open(
        self, max_draft: int, acceptance: Acceptance, self_draft: int = 0
    ) -> VerifyOpen:
        """Return the open that (re)attaches a verifier at the committed prefix."""
        features = self._features.ask()
        return replace(
            verify_open(
                self._request, self._prefix, max_draft, acceptance, features, self._drafted
            ),
            self_draft=self_draft,
            ngram=None if self._request.layout else self._ngram,
        )

    def verifier_opened(self, model: ModelInfo) -> None:
        """Take note of the target; raise Unavailable if it is another one than before."""
        if self._target is not None and not same_target(model, self._target):
            raise Unavailable(f"verifier serves {model.name} as another model than before")
        self._target = model
        self._features.verifier_opened(model)

    def verifier_lost(self) -> None:
        """Give up the round in flight; its draft is at hand again, its verdict will not count."""
        if self._in_flight is None:
            return
        if self._verifying is not None:
            self._drafts.put_back(self._verifying)
        self._in_flight = None
        self._round += 1

    def next_round(self, plain_passes: int) -> Round:
        """Return the round to verify now: the one in flight, or a new one. Not after the finish.

        A new round carries the draft at hand, if any, else it is plain, of so many passes.
        """
        if self._in_flight is not None:
            return self._in_flight
        assert self.finish is None
        return self._begin(self.draft(), plain_passes)

    def _begin(self, draft: Draft | None, plain_passes: int) -> Round:
        self._verifying = draft
        self._in_flight = request = Round(
            self.base,
            draft.tokens if draft else (),
            1 if draft else min(MAX_PLAIN_STEPS, self.tokens_left),
            draft.parents if draft else (),
            draft.q if draft else (),
            draft.expected if draft else (),
            self._features.ended,
            0 if draft else plain_passes,
        )
        self._ahead = frozenset()
        self._drafts.clear()
        return request

    def led_round_arrived(self, led: LedRound) -> Step:
        """Commit a round that the verifier led.

        Raises CorruptModelOutput, and commits nothing, if it is on another prefix than the
        committed one or its verdict has more than its draft allows.
        """
        if self._in_flight is not None or self.finish is not None or led.block.base != self.base:
            raise CorruptModelOutput("the verifier led a round on another prefix")
        if not is_readable(led.block, self._vocab_size):
            raise CorruptModelOutput("the verifier led a round with unknown tokens, or no tree")
        self._begin(whole_draft(Arrived(led.num_draft_tokens, led.block)), 1)
        step = self.verdict_arrived(led.verdict)
        if step is None:
            raise CorruptModelOutput("the verifier led a round and answered another one")
        return replace(step, ran_ahead=led.ran_ahead, hit=led.hit)

    def verdict_arrived(self, verdict: Verdict) -> Step | None:
        """Commit the verdict on the round in flight; None if it is on any other round.

        Raises CorruptModelOutput, and commits nothing, if it has more than was asked.
        """
        request = self._in_flight
        if request is None or verdict.base != request.base:
            return None
        check(request, verdict, self._vocab_size)
        check_logprobs(verdict, self._request.logprobs)
        due = len(self._request.prompt) - 1 if self._prompt_logprobs_due else 0
        if len(verdict.prompt_logprobs) != due:
            raise CorruptModelOutput("the verifier answered other prompt_logprobs than were due")
        self._prompt_logprobs_due = False
        # Of the newest token there are none: it was not fed yet.
        num_features = request.base.prefix_len + verdict.accepted + len(verdict.next_tokens) - 1
        self._features.arrived(verdict, num_features)
        self._drafted |= bool(request.draft)
        first, draft = not self.generated, self._verifying
        bought = len(request.draft) - verdict.left_out
        self._purchases = self._purchases.after(request, bought)
        done = commit(request, verdict, Ending(self.tokens_left, self._stop_ids))
        self._prefix.extend([committed.token for committed in done.tokens])
        self.finish = done.finish
        self._in_flight = None
        self._round += 1
        return Step(
            request=request,
            tokens=done.tokens,
            num_accepted=done.num_accepted,
            ngram=draft is not None and draft.block.proposal == NGRAM,
            bought=bought,
            price=verdict.price,
            plain_tokens=verdict.plain_tokens,
            observation=observed(draft, request, verdict, done.num_accepted) if draft else None,
            ran_ahead=bool(self._ahead),
            hit=any(map(self._prefix.starts_with, self._ahead)),
            prompt_logprobs=verdict.prompt_logprobs,
            cached_tokens=min(verdict.cached_tokens, len(self._request.prompt)) if first else 0,
            kept=tuple(verdict.kept[: done.num_accepted]),
            draft_timings=draft.block.timings if draft is not None else Timings(),
        )

    # The drafter.

    def draft_open(
        self,
        proposal: Proposal,
        acceptance: Acceptance,
        params: DraftParams = SIMPLE,
        num_guesses: int = 1,
    ) -> DraftOpen:
        """Return the open that (re)attaches a drafter at the committed prefix."""
        self._opening_len = len(self._prefix)
        return draft_open(self._request, self._prefix, proposal, acceptance, params, num_guesses)

    def drafter_opened(self, opened: DraftOpened) -> None:
        """Take note that the last draft_open was answered: drafts can be requested."""
        self._view = DrafterView(opened, self._opening_len)
        self._features.drafter_opened(opened)

    def drafter_lost(self) -> None:
        """Request no more drafts until a drafter is opened again; blocks at hand stay good."""
        self._view = None

    def features_lost(self) -> None:
        """Have the verifier send again, in chunks, what a drafter could not read from a store."""
        self._features.lost()

    def next_draft(self, k: int) -> Propose | None:
        """Return the request for a draft of up to k tokens after the committed prefix.

        None if it would be of no use, or if the text's n-grams suffice: their tree is at hand then.
        """
        if self.finish is not None:
            return None
        planned = self._planner.next(k)
        if isinstance(planned, NgramDraft):
            self._drafts.put(Arrived(*planned), self._vocab_size)
            return None
        if planned is None or self._drafts.request_is_vain:
            return None
        request = self._features.send(planned.request)
        if request is not None:
            self._view = planned.view
        return request

    def drafts_ahead(self, k: int) -> ProposeAhead | None:
        """Return the request for drafts of the round in flight's predicted outcomes, if of use."""
        if self._in_flight is None or self._verifying is None or self._features.reads:
            # Predicted tokens have no features yet.
            return None
        bought = self._purchases.bought(self._in_flight)
        outcomes = predict(self._in_flight, self._verifying.guesses, bought)
        planned = self._planner.after(outcomes, k)
        if planned is None:
            return None
        self._view = planned.view
        self._ahead = frozenset(each.base for each in outcomes_of(planned.request))
        return planned.request

    def draft_arrived(self, request: Propose, block: DraftBlock) -> None:
        """Keep a block that answers request, if it is of use now.

        Raises CorruptModelOutput if it is not an answer to the request or has unknown tokens.
        """
        self._arrived({request.base}, request.num_tokens, block)

    def drafts_ahead_arrived(self, request: ProposeAhead, blocks: Iterable[DraftBlock]) -> None:
        """Keep the blocks that answer request as long as their outcomes may come, or came.

        Raises CorruptModelOutput as draft_arrived does.
        """
        bases = {each.base for each in outcomes_of(request)}
        for block in blocks:
            self._arrived(bases, request.num_tokens, block)

    def _arrived(self, bases: Set[Base], num_tokens: int, block: DraftBlock) -> None:
        if block.base not in bases or len(block.tokens) > num_tokens:
            raise CorruptModelOutput("the drafter answered something else than was asked")
        known = self._view.opened.model.vocab_size if self._view else self._vocab_size
        if not is_readable(block, known):
            raise CorruptModelOutput("the drafter answered unknown tokens, or no tree of them")
        self._drafts.put(Arrived(num_tokens, block), self._vocab_size)

    def draft(self) -> Draft | None:
        """Return the draft at hand for the committed prefix, None if there is none."""
        return self._drafts.draft(self._vocab_size)

    # Rules.

    @property
    def _planner(self) -> DraftPlanner:
        prefix, stop_ids = self._prefix.tokens, self._stop_ids
        return DraftPlanner(prefix, self.base, self._end, stop_ids, self._view, self._ngram)

    @property
    def _vocab_size(self) -> int:
        return self._target.vocab_size if self._target else MAX_VOCAB
