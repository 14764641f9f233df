"""One request's decoding state: what is committed, what is asked, what to do next. Sans-I/O.

The session owns the committed tokens and decides which messages count. It is told what happened
(draft arrived, verdict arrived, a peer was lost) and answers with what to send, as values. Messages
may be lost, repeated, reordered or late: every rule compares bases, so none of that can change the
committed tokens. Nothing here reads a clock or does I/O.
"""

from __future__ import annotations

from dataclasses import replace

from foredraft.decoding.drafter_view import DrafterView
from foredraft.decoding.outcomes import Prediction, predict
from foredraft.errors import CorruptModelOutput, Unavailable
from foredraft.lease import DirectRound
from foredraft.limits import MAX_PLAIN_STEPS, MAX_PREFIX, check_range
from foredraft.ngram.tree import TextTreeParams
from foredraft.types import (
    Acceptance,
    Base,
    DraftBlock,
    DraftOpen,
    DraftOpened,
    DraftParams,
    FinishReason,
    ModelInfo,
    Proposal,
    Propose,
    Round,
    SamplingParams,
    Verdict,
    VerifyOpen,
)
from orchestrator.request import GenerationRequest
from orchestrator.session.commit import (
    Ending,
    check,
    check_logprobs,
    commit,
    observed,
)
from orchestrator.session.committed_prefix import CommittedPrefix
from orchestrator.session.compatibility import differ, same
from orchestrator.session.draft_buffer import ArrivedBlocks
from orchestrator.session.features import FeatureRelay
from orchestrator.session.ngram_draft import copied
from orchestrator.session.open_messages import draft_open, verify_open
from orchestrator.session.reconcile import is_readable
from orchestrator.session.step import Draft, Step, whole_draft

# The wire's token ids, while the target is not known yet.
MAX_VOCAB = 1 << 32
SIMPLE = DraftParams()


class Session:
    """The state machine of one request. At most one round is in flight.

    features names those that its drafter is expected to read; if it reads others, that costs time.
    """

    def __init__(self, request: GenerationRequest, features: str = "") -> None:
        check_range("prompt length", len(request.prompt), 1, MAX_PREFIX)
        check_range("max_new_tokens", request.max_new_tokens, 1, MAX_PREFIX)
        self._request = request
        self._stops = frozenset(request.stop_token_ids)
        self._prefix = CommittedPrefix(request.prompt)
        self._end = len(request.prompt) + request.max_new_tokens
        self._features = FeatureRelay(features, self._end)
        self._round = 0
        self._in_flight: Round | None = None
        self._verifying: Draft | None = None
        self._predicted: tuple[Prediction, ...] = ()
        self._blocks = ArrivedBlocks(self._prefix)
        self._target: ModelInfo | None = None
        self._view: DrafterView | None = None
        self._opening_len = 0
        self._untold = request.prompt_logprobs
        self.finish: FinishReason | None = None

    # What is known.

    @property
    def generated(self) -> tuple[int, ...]:
        """The committed tokens after the prompt."""
        return self._prefix.generated

    @property
    def sampling(self) -> SamplingParams:
        """How the request samples."""
        return self._request.sampling

    @property
    def wanted(self) -> int:
        """The number of tokens that may still be committed."""
        return self._end - len(self._prefix)

    @property
    def base(self) -> Base:
        """The committed prefix, as the base of the next round."""
        return Base(self._request.session_id, self._round, len(self._prefix), self._prefix.hash)

    @property
    def mismatch(self) -> str | None:
        """Why the drafter cannot serve this target, None while nothing speaks against it."""
        if self._view is None or self._target is None:
            return None
        return differ(self._view.opened.model, self._target) or self._features.fault

    @property
    def takes_direct(self) -> bool:
        """Whether the drafter can serve the verifier without what is done here: telling features,
        and leaving out tokens beyond the target's. True before the target is known.
        """
        if self._view is None:
            return False
        drafter = self._view.opened.model
        return drafter.vocab_size <= self._vocab_size and not drafter.features_hash

    @property
    def features_due(self) -> bool:
        """Whether opening the verifier again would bring features that the drafter needs."""
        return self._features.due

    def extends(self, base: Base) -> bool:
        """Return whether base names the committed prefix or an earlier one of this request."""
        return self._prefix.starts_with(base)

    # The verifier.

    def verify_open(self, max_draft: int, acceptance: Acceptance) -> VerifyOpen:
        """Return the open that (re)attaches a verifier at the committed prefix."""
        told = self._features.ask()
        return verify_open(self._request, self._prefix, max_draft, acceptance, told)

    def verifier_opened(self, model: ModelInfo) -> None:
        """Take note of the target; raise Unavailable if it is another one than before."""
        if self._target is not None and not same(model, self._target):
            raise Unavailable(f"verifier serves {model.name} as another model than before")
        self._target = model
        self._features.verifier_opened(model)

    def verifier_lost(self) -> None:
        """Give up the round in flight; its draft can be asked again, its verdict will not count."""
        if self._in_flight is None:
            return
        if self._verifying is not None:
            self._blocks.put_back(self._verifying.request, self._verifying.block)
        self._in_flight = None
        self._round += 1

    def next_round(self, plain_steps: int) -> Round:
        """Return the round to verify now: the one in flight, or a new one. Not after the finish.

        A new round carries the draft at hand, if any, else asks for plain_steps plain tokens, and
        never for more than are wanted.
        """
        if self._in_flight is not None:
            return self._in_flight
        assert self.finish is None
        return self._begin(self.draft(), plain_steps)

    def _begin(self, draft: Draft | None, plain_steps: int) -> Round:
        self._verifying = draft
        self._in_flight = asked = Round(
            self.base,
            draft.tokens if draft else (),
            min(plain_steps, self.wanted, MAX_PLAIN_STEPS),
            draft.parents if draft else (),
            draft.q if draft else (),
        )
        self._predicted = ()
        self._blocks.clear()
        return asked

    def direct_arrived(self, told: DirectRound) -> Step:
        """Commit what a round came to whose draft the verifier fetched itself.

        Raises CorruptModelOutput, and commits nothing, if it is on another prefix than the
        committed one or says more than its draft allows.
        """
        draft = whole_draft(told)
        if self._in_flight is not None or self.finish is not None or told.block.base != self.base:
            raise CorruptModelOutput("the verifier told of a round on another prefix")
        if not is_readable(told.block, self._vocab_size):
            raise CorruptModelOutput("the verifier told of unknown tokens, or no tree of them")
        self._begin(draft, 1)
        step = self.verdict_arrived(told.verdict)
        if step is None:
            raise CorruptModelOutput("the verifier told of a draft and of another one's verdict")
        return replace(step, ran_ahead=told.ran_ahead, hit=told.hit)

    def verdict_arrived(self, verdict: Verdict) -> Step | None:
        """Commit what the verdict on the round in flight says; None if it is on any other round.

        Raises CorruptModelOutput, and commits nothing, if it says more than was asked.
        """
        asked = self._in_flight
        if asked is None or verdict.base != asked.base:
            return None
        check(asked, verdict, self._vocab_size)
        check_logprobs(verdict, self._request.logprobs)
        due = len(self._request.prompt) - 1 if self._untold else 0
        if len(verdict.prompt_logprobs) != due:
            raise CorruptModelOutput("the verifier answered other prompt_logprobs than were due")
        self._untold = False
        # Of the newest token there are none: it was not fed yet.
        told = asked.base.prefix_len + verdict.accepted + len(verdict.next_tokens) - 1
        self._features.arrived(verdict.features, told)
        first, draft = not self.generated, self._verifying
        done = commit(asked, verdict, Ending(self.wanted, self._stops))
        self._prefix.extend([committed.token for committed in done.tokens])
        self.finish = done.finish
        self._in_flight = None
        self._round += 1
        return Step(
            asked=asked,
            tokens=done.tokens,
            kept=done.kept,
            observation=observed(draft, asked, verdict, done.kept) if draft else None,
            ran_ahead=bool(self._predicted),
            hit=any(self._prefix.starts_with(p.base) for p in self._predicted),
            prompt_logprobs=verdict.prompt_logprobs,
            cached_tokens=min(verdict.cached_tokens, len(self._request.prompt)) if first else 0,
        )

    # The drafter.

    def draft_open(
        self,
        proposal: Proposal,
        acceptance: Acceptance,
        params: DraftParams = SIMPLE,
    ) -> DraftOpen:
        """Return the open that (re)attaches a drafter at the committed prefix."""
        self._opening_len = len(self._prefix)
        return draft_open(self._request, self._prefix, proposal, acceptance, params)

    def direct_open(
        self, proposal: Proposal, acceptance: Acceptance, params: DraftParams = SIMPLE
    ) -> DraftOpen:
        """Return the open that a verifier, which has the text, attaches a drafter with."""
        opening = draft_open(self._request, self._prefix, proposal, acceptance, params)
        return replace(opening, prefix=())

    def drafter_opened(self, opened: DraftOpened) -> None:
        """Take note that the last draft_open was answered: proposals can be asked for."""
        self._view = DrafterView(opened, self._opening_len)
        self._features.drafter_opened(opened)

    def drafter_lost(self) -> None:
        """Ask for no more proposals until a drafter is opened again; blocks at hand stay good."""
        self._view = None

    def draft_request(self, length: int) -> Propose | None:
        """Return the request for up to length tokens after the committed prefix, if any use."""
        if self._blocks.in_vain:
            return None
        return self._propose(Prediction((), self.base), length)

    def copy(self, length: int, params: TextTreeParams) -> bool:
        """Make what the text itself tells of its continuation the draft at hand, if it is likely
        enough; return whether it is.
        """
        count = min(length, self.wanted - 1)
        found = copied(self._prefix, self.base, count, params, self._stops)
        if found is not None:
            self._blocks.put_back(*found)
        return found is not None

    def run_ahead_request(self, length: int) -> Propose | None:
        """Return the request for the likely outcome of the round in flight, if any use."""
        if self._in_flight is None or self._verifying is None:
            return None
        if self._verifying.block.proposal is Proposal.HYBRID:
            # Copied here: what follows is likely to be copied, too, for nothing.
            return None
        for prediction in predict(self._in_flight, self._verifying.bonus_guess):
            if self._stops.isdisjoint(prediction.tokens):
                request = self._propose(prediction, length)
                if request is not None:
                    self._predicted = (prediction,)
                return request
        return None

    def draft_arrived(self, request: Propose, block: DraftBlock) -> None:
        """Keep a block that answers request, if it is of use now or for a predicted prefix.

        Raises CorruptModelOutput if it is not an answer to the request or has unknown tokens.
        """
        if block.base != request.base or len(block.tokens) > request.num_tokens:
            raise CorruptModelOutput("the drafter answered something else than was asked")
        known = self._view.opened.model.vocab_size if self._view else self._vocab_size
        if not is_readable(block, known):
            raise CorruptModelOutput("the drafter answered unknown tokens, or no tree of them")
        self._blocks.put(request, block, self._vocab_size)

    def draft(self) -> Draft | None:
        """Return the draft at hand for the committed prefix, None if there is none."""
        return self._blocks.draft(self._vocab_size)

    # Rules.

    def _propose(self, after: Prediction, length: int) -> Propose | None:
        if self._view is None or self.finish is not None:
            return None
        # A round commits one token more than it keeps, so the last wanted one is never drafted.
        left = self._end - after.base.prefix_len - 1
        count = min(length, left, self._view.room(after.base.prefix_len))
        features = self._features.send(after.base.prefix_len) if count > 0 else None
        if features is None:
            return None
        keep_len, append, self._view = self._view.name(self._prefix.tokens, after.tokens)
        return Propose(after.base, keep_len, append, count, features)

    @property
    def _vocab_size(self) -> int:
        return self._target.vocab_size if self._target else MAX_VOCAB
