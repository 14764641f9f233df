"""VllmEngine's requests as those of the HTTP API; what has no equal here is refused by name."""

from __future__ import annotations

from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from deployments.ingress.openai.chat.request import DEFAULT_MAX_TOKENS
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.rpc.requests import parsed
from foredraft.errors import InvalidRequest

# Fields of a request that ask for what is not served, wherever they are set.
_REFUSED = (
    "data_parallel_rank",
    "extra_mm_inputs",
    "kv_transfer_params",
    "kv_transfer_params_json",
    "media_refs",
    "mm_inputs",
)
_SAMPLING_REFUSED = ("prompt_logprobs", "structural_tag", "truncate_prompt_tokens")


class EngineRequest(CompletionRequest):
    """A prompt to continue; without max_tokens, for as long as a conversation's answer."""

    def length(self, prompt_tokens: int, max_len: int) -> int:
        return self.max_tokens or max(1, min(max_len - prompt_tokens, DEFAULT_MAX_TOKENS))


def request_of(m: pb.GenerateRequest) -> EngineRequest:
    """Return what is asked for, its fields checked; raise InvalidRequest naming one."""
    p = m.sampling_params
    for message, names in ((m, _REFUSED), (p, _SAMPLING_REFUSED)):
        for field, _ in message.ListFields():
            if field.name in names:
                raise InvalidRequest(f"{field.name} is not supported", param=field.name)
    values: dict[str, Any] = {
        "prompt": _prompt(m),
        "n": p.n or 1,
        "temperature": p.temperature if p.HasField("temperature") else 1.0,
        "top_k": p.top_k,
        "top_p": p.top_p or 1.0,
        "min_p": p.min_p,
        "seed": p.seed if p.HasField("seed") else None,
        "repetition_penalty": p.repetition_penalty or 1.0,
        "presence_penalty": p.presence_penalty,
        "frequency_penalty": p.frequency_penalty,
        "min_tokens": p.min_tokens,
        "logit_bias": dict(p.logit_bias),
        "max_tokens": p.max_tokens if p.HasField("max_tokens") else None,
        "stop": list(p.stop),
        "stop_token_ids": list(p.stop_token_ids),
        "ignore_eos": p.ignore_eos,
        "logprobs": p.logprobs if p.HasField("logprobs") else None,
        "structured_outputs": _structured(p),
    }
    return parsed(EngineRequest, values)


def _prompt(m: pb.GenerateRequest) -> str | list[int]:
    found = m.text if m.WhichOneof("input") == "text" else list(m.tokenized.input_ids)
    if not found:
        raise InvalidRequest("input is empty", param="input")
    return found


def _structured(p: pb.SamplingParams) -> dict[str, Any] | None:
    kind = p.WhichOneof("constraint")
    if kind == "json_schema":
        return {"json": p.json_schema}
    if kind == "choice":
        return {"choice": list(p.choice.choices)}
    if kind == "json_object":
        return {"json_object": True} if p.json_object else None
    return {kind: getattr(p, kind)} if kind else None
