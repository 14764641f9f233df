"""What a verdict commits: accepted draft tokens, the target's own, cut at the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat, starmap

from foredraft.decoding.outcomes import predicts
from foredraft.decoding.tree import ROOT, explicit, is_branch
from foredraft.errors import CorruptModelOutput
from foredraft.messages import Round, Verdict
from foredraft.types import Committed, FinishReason, Origin, Price, Timings, TokenLogprobs
from orchestrator.length.controllers import Observation
from orchestrator.session.drafts import Draft


@dataclass(frozen=True, slots=True)
class Step:
    """What one verdict committed, for the controller and for the statistics.

    num_accepted counts the committed draft tokens; ngram is true where the draft was made of the
    text's n-grams. observation is None for a plain round. ran_ahead is true where a draft was
    requested meanwhile, hit that the outcome was one that it was requested for. Of the draft
    `bought` tokens were verified, at this price. cached_tokens of the prompt were not read for this
    request; the first step has them. Without the draft the pass would have committed plain_tokens,
    0 where that is not known. kept are the nodes of the draft that were committed; the
    drafter took draft_timings for it.
    """

    request: Round
    tokens: tuple[Committed, ...]
    num_accepted: int
    ngram: bool
    observation: Observation | None
    ran_ahead: bool
    hit: bool
    bought: int
    price: Price
    plain_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
    kept: tuple[int, ...] = ()
    draft_timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a request ends: after so many more tokens, or after the first stop token."""

    tokens_left: int
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Commit:
    """The tokens to commit, how many of them were drafted, and why the request ends, if it does."""

    tokens: tuple[Committed, ...]
    num_accepted: int
    finish: FinishReason | None


def check(request: Round, verdict: Verdict, vocab_size: int) -> None:
    """Raise CorruptModelOutput if the verdict has more than the round asked for."""
    most = 1 if request.draft else request.plain_steps
    bought = len(request.draft) - verdict.left_out
    if not (
        0 <= verdict.accepted <= bought <= len(request.draft)
        and 1 <= len(verdict.next_tokens) <= most
    ):
        raise CorruptModelOutput("the verifier answered more tokens than the round asked for")
    if not is_branch(verdict.kept, _bought(request, verdict)):
        raise CorruptModelOutput("the verifier accepted tokens that do not follow each other")
    if not 0 <= min(verdict.next_tokens) <= max(verdict.next_tokens) < vocab_size:
        raise CorruptModelOutput("the verifier answered a token outside its vocabulary")


def check_logprobs(verdict: Verdict, count: int | None) -> None:
    """Raise CorruptModelOutput unless the verdict has the logprobs that were requested."""
    due = 0 if count is None else verdict.accepted + len(verdict.next_tokens)
    if len(verdict.logprobs) != due or any(len(t.top) > (count or 0) for t in verdict.logprobs):
        raise CorruptModelOutput("the verifier answered other logprobs than were asked for")


def commit(request: Round, verdict: Verdict, ending: Ending) -> Commit:
    """Return what a checked verdict commits."""
    drafted = (request.draft[node] for node in verdict.kept)
    tokens = (*drafted, *verdict.next_tokens)[: ending.tokens_left]
    finish = FinishReason.LENGTH if len(tokens) == ending.tokens_left else None
    if not ending.stop_ids.isdisjoint(tokens):
        finish = FinishReason.STOP
        tokens = tokens[: next(i for i, t in enumerate(tokens) if t in ending.stop_ids) + 1]
    accepted = min(verdict.accepted, len(tokens))
    own = [_first_origin(request, verdict)] + [Origin.PLAIN] * len(tokens)
    labelled = zip(
        tokens, [Origin.KEPT] * accepted + own, verdict.logprobs or repeat(None), strict=False
    )
    return Commit(tuple(starmap(Committed, labelled)), accepted, finish)


def _first_origin(request: Round, verdict: Verdict) -> Origin:
    """Return how the first token after the accepted ones came about."""
    if not request.draft:
        return Origin.PLAIN
    parents = _bought(request, verdict)
    end = verdict.kept[-1] if verdict.kept else ROOT
    return Origin.CORRECTION if end in parents else Origin.BONUS


def _bought(request: Round, verdict: Verdict) -> Sequence[int]:
    """Return the parents of the draft tokens that were verified."""
    count = len(request.draft)
    return explicit(request.parents, count)[: count - verdict.left_out]


def observed(
    draft: Draft, request: Round, verdict: Verdict, num_accepted: int
) -> Observation | None:
    """Return what a round's draft came to, of which so many tokens were committed.

    None if none of it was verified.
    """
    bought = len(request.draft) - verdict.left_out
    if not bought:
        return None
    places = (draft.trimmed + node for node in verdict.kept[:num_accepted])
    predicted = None
    if draft.guesses:
        token = verdict.next_tokens[0]
        predicted = predicts(request, draft.guesses, bought, verdict.kept, token)
    # What was not bought was not observed; what the drafter left out was.
    return Observation(
        draft.trimmed + bought if verdict.left_out else draft.requested_k,
        draft.block.generated_len,
        draft.trimmed + num_accepted,
        predicted=predicted,
        places=(*range(draft.trimmed), *places),
    )
