"""What opens a session at a verifier and at a drafter, at the start or after a loss. Pure."""

from __future__ import annotations

from dataclasses import replace

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.messages import DraftOpen, VerifyOpen
from foredraft.noise.streams import DRAFT, substream
from foredraft.types import Acceptance, DraftParams, Proposal
from orchestrator.request import GenerationRequest


def verify_open(
    request: GenerationRequest,
    prefix: CommittedPrefix,
    max_draft: int,
    acceptance: Acceptance,
    features: tuple[str, int, str],
    drafted: bool,
) -> VerifyOpen:
    """Return the open for a verifier; features are FeatureRelay.ask's.

    drafted is whether drafts of the session were decided about.
    """
    tokens_left = request.max_new_tokens - len(prefix.generated)
    return VerifyOpen(
        request.session_id,
        tuple(prefix.tokens),
        request.sampling,
        tokens_left,
        min(max_draft, tokens_left - 1),
        request.stop_token_ids,
        acceptance,
        replace(request.logits, prompt_len=len(request.prompt)),
        request.logprobs,
        request.grammar,
        # What the first verdict brought is not asked for again.
        request.prompt_logprobs and not prefix.generated,
        request.cache_salt,
        *features,
        request.groups,
        drafted,
        request.layout,
    )


def draft_open(
    request: GenerationRequest,
    prefix: CommittedPrefix,
    proposal: Proposal,
    acceptance: Acceptance,
    params: DraftParams,
    num_guesses: int,
) -> DraftOpen:
    """Return the open for a drafter.

    Only the rule coupled may see drafts made with the target's own noise: under any other, which of
    them were rejected would depend on the noise that later tokens are drawn with.
    """
    sampling = request.sampling
    if acceptance is not Acceptance.COUPLED:
        sampling = replace(sampling, seed=substream(sampling.seed, DRAFT, 0))
    return DraftOpen(
        request.session_id,
        tuple(prefix.tokens),
        sampling,
        proposal,
        len(request.prompt) + request.max_new_tokens,
        params,
        num_guesses,
        len(request.prompt),
        acceptance is Acceptance.L2R,
    )
