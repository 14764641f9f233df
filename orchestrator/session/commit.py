"""What a verdict commits: kept draft tokens, the target's own, cut where the request ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat, starmap

from foredraft.decoding.outcomes import predict
from foredraft.decoding.tree import ROOT, explicit, is_branch
from foredraft.errors import CorruptModelOutput
from foredraft.types import Committed, FinishReason, Origin, Round, Verdict
from orchestrator.length.controllers import Observation
from orchestrator.session.step import Draft


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a request ends: after so many more tokens, or after the first stop token."""

    wanted: int
    stops: frozenset[int]


@dataclass(frozen=True, slots=True)
class Commit:
    """The tokens to commit, how many of them were drafted, and why the request ends, if it does."""

    tokens: tuple[Committed, ...]
    kept: int
    finish: FinishReason | None


def check(asked: Round, verdict: Verdict, vocab_size: int) -> None:
    """Raise CorruptModelOutput if the verdict says more than the round asked for."""
    most = 1 if asked.draft else asked.plain_steps
    if not (0 <= verdict.accepted <= len(asked.draft) and 1 <= len(verdict.next_tokens) <= most):
        raise CorruptModelOutput("the verifier answered more tokens than the round asked for")
    if not is_branch(verdict.kept, explicit(asked.parents, len(asked.draft))):
        raise CorruptModelOutput("the verifier kept tokens that do not follow each other")
    if not 0 <= min(verdict.next_tokens) <= max(verdict.next_tokens) < vocab_size:
        raise CorruptModelOutput("the verifier answered a token outside its vocabulary")


def check_logprobs(verdict: Verdict, count: int | None) -> None:
    """Raise CorruptModelOutput unless the verdict tells of every token as was asked."""
    due = 0 if count is None else verdict.accepted + len(verdict.next_tokens)
    if len(verdict.logprobs) != due or any(len(t.top) > (count or 0) for t in verdict.logprobs):
        raise CorruptModelOutput("the verifier answered other logprobs than were asked for")


def commit(asked: Round, verdict: Verdict, ending: Ending) -> Commit:
    """Return what a checked verdict commits."""
    drafted = (asked.draft[node] for node in verdict.kept)
    tokens = (*drafted, *verdict.next_tokens)[: ending.wanted]
    finish = FinishReason.LENGTH if len(tokens) == ending.wanted else None
    if not ending.stops.isdisjoint(tokens):
        finish = FinishReason.STOP
        tokens = tokens[: next(i for i, t in enumerate(tokens) if t in ending.stops) + 1]
    kept = min(verdict.accepted, len(tokens))
    origins = [Origin.KEPT] * kept + [_first_origin(asked, verdict)] + [Origin.PLAIN] * len(tokens)
    labelled = zip(tokens, origins, verdict.logprobs or repeat(None), strict=False)
    return Commit(tuple(starmap(Committed, labelled)), kept, finish)


def _first_origin(asked: Round, verdict: Verdict) -> Origin:
    """Return how the first token after the kept ones came about."""
    if not asked.draft:
        return Origin.PLAIN
    parents = explicit(asked.parents, len(asked.draft))
    end = verdict.kept[-1] if verdict.kept else ROOT
    return Origin.CORRECTION if end in parents else Origin.BONUS


def observed(draft: Draft, asked: Round, verdict: Verdict, kept: int) -> Observation:
    """Return what a round's draft came to, of which so many tokens were committed."""
    places = (draft.trimmed + node for node in verdict.kept[:kept])
    tokens = (*(asked.draft[node] for node in verdict.kept), *verdict.next_tokens)
    predicted = predict(asked, draft.bonus_guess)
    return Observation(
        draft.request.num_tokens,
        draft.block.generated_len,
        draft.trimmed + kept,
        foretold=any(tokens[: len(p.tokens)] == p.tokens for p in predicted) if predicted else None,
        places=(*range(draft.trimmed), *places),
    )
