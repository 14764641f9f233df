"""What must hold of an open, and of a round, before anything is done about it. Pure."""

from __future__ import annotations

from foredraft import limits
from foredraft.decoding.tree import check_parents, is_path
from foredraft.errors import InvalidRequest
from foredraft.messages import Round, VerifyOpen
from foredraft.types import ModelInfo


def check_open(request: VerifyOpen, info: ModelInfo) -> int:
    """Return the most tokens that the text may come to; raise InvalidRequest naming the field."""
    limits.check_session_id(request.session_id)
    limits.check_tokens("prefix", request.prefix, info.vocab_size)
    limits.check_tokens("stop_token_ids", request.stop_token_ids, info.vocab_size)
    limits.check_sampling(request.sampling, info.vocab_size)
    limits.check_range("prefix length", len(request.prefix), 1, info.max_len - 1)
    limits.check_range("max_new_tokens", request.max_new_tokens, 1, limits.MAX_PREFIX)
    limits.check_range("max_draft", request.max_draft, 0, limits.MAX_DRAFT)
    limits.check_range("self_draft", request.self_draft, 0, limits.MAX_DRAFT)
    commit_limit = len(request.prefix) + request.max_new_tokens
    if commit_limit > info.max_len:
        raise InvalidRequest(
            f"prefix + max_new_tokens is {commit_limit}; the model holds {info.max_len}",
            param="max_new_tokens",
        )
    limits.check_range("features_from", request.features_from, 0, len(request.prefix))
    if request.logprobs is not None:
        limits.check_range("logprobs", request.logprobs, 0, limits.MAX_LOGPROBS)
    if request.prompt_logprobs:
        if request.logprobs is None:
            raise InvalidRequest("prompt_logprobs needs logprobs", param="prompt_logprobs")
        # They all travel in one message.
        entries = len(request.prefix) * (1 + request.logprobs)
        limits.check_range("prompt_logprobs entries", entries, 0, limits.MAX_PROMPT_LOGPROBS)
    _check_logits(request, info)
    _check_layout(request, info)
    return commit_limit


def _check_layout(request: VerifyOpen, info: ModelInfo) -> None:
    layout = request.layout
    if (layout is not None) != info.any_subset:
        raise InvalidRequest(
            "an any-subset model needs a layout"
            if info.any_subset
            else "this model reads left to right and takes no layout",
            param="layout",
        )
    if layout is None:
        if request.self_draft:
            raise InvalidRequest("only any-subset models draft themselves", param="self_draft")
        return
    limits.check_range("layout.length", layout.length, 2, info.max_len)
    limits.check_range("prefix length", len(request.prefix), len(layout.given), layout.length - 1)
    left = layout.length - len(request.prefix)
    limits.check_range("max_new_tokens", request.max_new_tokens, 1, left)
    excluded = {
        "stop_token_ids": request.stop_token_ids,
        "grammar": request.grammar,
        "prompt_logprobs": request.prompt_logprobs,
        "features_hash": request.features_hash,
        "ngram": request.ngram,
    }
    for name, value in excluded.items():
        if value:
            raise InvalidRequest(f"an any-subset model takes no {name}", param=name)


def check_round(request: Round, vocab_size: int, max_draft: int, trees: bool) -> None:
    """Raise InvalidRequest naming the field where a round's draft is none, whatever the session.

    max_draft is what the open announced; trees is whether the session's rule verifies them.
    """
    check_parents("parents", request.parents, len(request.draft))
    limits.check_tokens("draft", request.draft, vocab_size)
    limits.check_range("draft length", len(request.draft), 0, max_draft)
    limits.check_candidates("q", request.q, request.draft)
    for candidates in request.q:
        limits.check_tokens("q", candidates.tokens, vocab_size)
    if not (trees or is_path(request.parents)):
        raise InvalidRequest("only the acceptance rule coupled verifies trees", param="parents")
    if not request.draft:
        limits.check_range("plain_steps", request.plain_steps, 1, limits.MAX_PLAIN_STEPS)
        limits.check_range("plain_passes", request.plain_passes, 0, limits.MAX_PLAIN_STEPS)


def _check_logits(request: VerifyOpen, info: ModelInfo) -> None:
    logits = request.logits
    limits.check_logits(logits, info.vocab_size)
    limits.check_range("prompt_len", logits.prompt_len, 0, len(request.prefix))
    allowed = logits.allowed_token_ids
    if request.grammar is not None and (logits.min_tokens or allowed):
        param = "min_tokens" if logits.min_tokens else "allowed_token_ids"
        raise InvalidRequest(f"{param} and a grammar can leave no token to choose", param=param)
    if logits.min_tokens and allowed and set(request.stop_token_ids).issuperset(allowed):
        raise InvalidRequest(
            "before min_tokens none of allowed_token_ids may be generated", param="min_tokens"
        )
