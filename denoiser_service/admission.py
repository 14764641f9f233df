"""What must hold of an open before anything is done about it. Pure."""

from __future__ import annotations

from foredraft import limits
from foredraft.denoising import DenoiseOpen, Static
from foredraft.errors import InvalidRequest
from foredraft.types import ModelInfo


def check_open(request: DenoiseOpen, info: ModelInfo, most_drafts: int) -> int:
    """Return the rows of the text's whole blocks; raise InvalidRequest naming the field."""
    limits.check_session_id(request.session_id)
    limits.check_range("prefix length", len(request.prefix), 1, info.max_len)
    limits.check_tokens("prefix", request.prefix, info.vocab_size)
    if info.mask_token_id in request.prefix:
        raise InvalidRequest("prefix has the token of a masked slot", param="prefix")
    limits.check_range("stop_token_ids entries", len(request.stop_token_ids), 0, info.vocab_size)
    limits.check_tokens("stop_token_ids", request.stop_token_ids, info.vocab_size)
    limits.check_range("max_new_tokens", request.max_new_tokens, 1, limits.MAX_PREFIX)
    limits.check_range("max_drafts", request.max_drafts, 0, most_drafts)
    _check_rule(request, info)
    last = len(request.prefix) + request.max_new_tokens
    rows = -(-last // info.block_length) * info.block_length
    if rows > info.max_len:
        raise InvalidRequest(
            f"prefix + max_new_tokens is {last}, in whole blocks {rows}; the model holds "
            f"{info.max_len}",
            param="max_new_tokens",
        )
    return rows


def _check_rule(request: DenoiseOpen, info: ModelInfo) -> None:
    sampling = request.sampling
    limits.check_sampling(sampling, info.vocab_size)
    if isinstance(request.unmasking, Static):
        limits.check_range("per_step", request.unmasking.per_step, 1, info.block_length)
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, value in neutral.items():
        if getattr(sampling, name) != value:
            raise InvalidRequest(f"a block-diffusion model takes no {name}", param=name)
