"""VllmEngine with its own client: GenerationService's tokens, aborts, errors, the tokenizer."""

from __future__ import annotations

import asyncio
import hashlib
import io
import sys
import zipfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.keys import Key, add_key, read_keys
from deployments.ingress.generations import Generations
from deployments.ingress.openai.report import speculation
from deployments.ingress.openai.routes import handlers
from deployments.ingress.rpc import vllm_engine
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig
from deployments.ingress.rpc.server import RpcServer
from deployments.ingress.rpc.vllm_engine import servicer
from deployments.ingress.rpc.vllm_engine.servicer import SERVICE
from foredraft.errors import ConfigError
from orchestrator.report import PLAIN, StatsAccumulator
from tests.support.orchestrator.peers import ScriptedVerifier, continuation
from tests.support.waiting import eventually
from tests.unit.ingress.chat.test_chat import Scripted
from tests.unit.ingress.test_routes import TOKENIZER_FILE, generations
from tests.wire.test_generation import PROMPT

CONFIG = RpcConfig(port=0, vllm_engine=True)


@asynccontextmanager
async def serving(made: Generations, keys: Sequence[Key] = ()) -> AsyncIterator[grpc.aio.Channel]:
    by = handlers(made, TOKENIZER_FILE)
    server = RpcServer(Calls(by, Admission(keys, lambda: 0.0), 64), CONFIG)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop()


@asynccontextmanager
async def called(
    verifier: ScriptedVerifier, ends: tuple[int, ...] = (), **options: Any
) -> AsyncIterator[Any]:
    async with serving(generations(verifier, ends), **options) as channel:
        yield vllm_engine_pb2_grpc.VllmEngineStub(channel)


def ask(stream: bool = False, **sampling: Any) -> pb.GenerateRequest:
    sampling = {"max_tokens": 12, "temperature": 0.0} | sampling
    return pb.GenerateRequest(
        request_id="r",
        tokenized=pb.TokenizedInput(input_ids=PROMPT),
        sampling_params=ParseDict(sampling, pb.SamplingParams()),
        stream=stream,
    )


async def answers(call: Any) -> list[pb.GenerateResponse]:
    return [each async for each in call]


async def test_a_whole_answer_and_a_streamed_one() -> None:
    async with called(ScriptedVerifier()) as stub:
        [whole] = await answers(stub.Generate(ask()))
        *chunks, last = await answers(stub.Generate(ask(stream=True)))
    told = whole.complete
    assert list(told.output_ids) == list(continuation(PROMPT, 12))
    assert (told.finish_reason, told.prompt_tokens, told.completion_tokens) == ("length", 5, 12)
    assert told.spec_accepted_tokens > 0 and told.spec_draft_tokens > 0
    assert last.complete.output_ids == told.output_ids
    parts = [each.chunk for each in chunks]
    assert [token for part in parts for token in part.token_ids] == list(told.output_ids)
    assert [part.completion_tokens for part in parts] == sorted(
        {part.completion_tokens for part in parts}
    )
    assert {part.prompt_tokens for part in parts} == {5}


async def test_several_answers_have_their_numbers() -> None:
    async with called(ScriptedVerifier()) as stub:
        found = await answers(stub.Generate(ask(n=3, seed=4, temperature=0.8)))
    assert sorted(each.complete.index for each in found) == [0, 1, 2]


async def test_an_end_of_text_is_the_matched_stop() -> None:
    first, *_ = continuation(PROMPT, 4)
    for ends, sampling in (((first,), {}), ((), {"stop_token_ids": [first]})):
        async with called(ScriptedVerifier(), ends=ends) as stub:
            [found] = await answers(stub.Generate(ask(**sampling)))
        assert found.complete.finish_reason == "stop"
        assert found.complete.matched_token_id == first


async def test_without_a_length_an_answer_is_as_long_as_a_conversations() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        asked = ask(min_tokens=40)
        asked.sampling_params.ClearField("max_tokens")
        [found] = await answers(stub.Generate(asked))
    assert found.complete.completion_tokens == 1024


async def test_logprobs_have_a_value_for_each_token() -> None:
    made = Scripted("Good morning")
    made.report = speculation(StatsAccumulator(PLAIN).report(0.0, 0, 0))
    async with serving(made) as channel:
        stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)
        [found] = await answers(stub.Generate(ask(logprobs=2)))
    told = found.complete.output_logprobs
    assert list(told.token_ids) == list(found.complete.output_ids) == [65, 65]
    assert list(told.token_logprobs) == [-0.5, -0.5]
    assert [list(top.token_ids) for top in told.top_logprobs] == [[65, 66]] * 2
    assert made.asked[0].generation.logprobs == 2


def slow(verifier: ScriptedVerifier) -> None:
    """Have each verification take a moment."""

    async def before(index: int) -> None:
        await asyncio.sleep(0.02)

    verifier.before = before


async def test_an_abort_ends_its_request_and_frees_it() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        slow(verifier)
        call = stub.Generate(ask(stream=True, max_tokens=4000))
        rest = aiter(call)
        first = await anext(rest)
        loads = await stub.GetLoads(pb.GetLoadsRequest())
        assert loads.loads[0].num_running_reqs == 1
        await stub.Abort(pb.AbortRequest(request_ids=["other", "r"]))
        *_, last = await answers(rest)
        assert last.complete.finish_reason == "abort"
        # It keeps what had come.
        came = list(first.chunk.token_ids)
        assert list(last.complete.output_ids)[: len(came)] == came
        await eventually(lambda: not verifier.live)
        loads = await stub.GetLoads(pb.GetLoadsRequest())
        assert loads.loads[0].num_running_reqs == 0


async def test_a_request_is_aborted_by_its_own_client_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    mine, theirs = (
        (("authorization", f"Bearer {add_key(path, name)}"),) for name in ("mine", "theirs")
    )
    verifier = ScriptedVerifier()
    async with called(verifier, keys=read_keys(path)) as stub:
        slow(verifier)
        rest = aiter(stub.Generate(ask(stream=True, max_tokens=40), metadata=mine))
        await anext(rest)
        await stub.Abort(pb.AbortRequest(request_ids=["r"]), metadata=theirs)
        assert (await answers(rest))[-1].complete.finish_reason == "length"
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await answers(stub.Generate(ask()))
        assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_one_id_runs_once_and_no_id_as_often_as_you_like() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        slow(verifier)
        first = aiter(stub.Generate(ask(stream=True, max_tokens=200)))
        await anext(first)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await answers(stub.Generate(ask()))
        assert dict(failed.value.trailing_metadata())["foredraft-param"] == "request_id"
        nameless = ask(stream=True)
        nameless.request_id = ""
        two = [aiter(stub.Generate(nameless)) for _ in range(2)]
        for call in (first, *two):
            assert (await answers(call))[-1].complete.finish_reason == "length"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tokenized": {}}, "input"),
        ({"text": ""}, "input"),
        ({"tokenized": {"input_ids": [1 << 31]}}, "input"),
        ({"sampling_params": {"temperature": -1}}, "temperature"),
        ({"sampling_params": {"n": 17}}, "n"),
        ({"sampling_params": {"logprobs": -1}}, "logprobs"),
        ({"sampling_params": {"prompt_logprobs": 1}}, "prompt_logprobs"),
        ({"sampling_params": {"structural_tag": "{}"}}, "structural_tag"),
        ({"sampling_params": {"logit_bias": {"-1": 1.0}}}, "logit_bias"),
        ({"kv_transfer_params_json": "{}"}, "kv_transfer_params_json"),
        ({"data_parallel_rank": 3}, "data_parallel_rank"),
        ({"media_refs": {"items": [{"url": "http://a"}]}}, "media_refs"),
        ({"request_id": "r" * 257}, "request_id"),
    ],
)
async def test_what_is_wrong_or_not_served_is_named(change: dict[str, Any], param: str) -> None:
    verifier = ScriptedVerifier()
    fields: dict[str, Any] = {"tokenized": {"input_ids": list(PROMPT)}}
    if "text" in change:
        del fields["tokenized"]
    message = ParseDict(fields | change, pb.GenerateRequest())
    async with called(verifier) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await answers(stub.Generate(message))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(failed.value.trailing_metadata())["foredraft-param"] == param
    assert not verifier.opens


async def test_a_grammar_travels() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        for constraint in (
            {"regex": "a+"},
            {"json_schema": '{"type": "object"}'},
            {"json_object": True},
            {"choice": {"choices": ["a", "b"]}},
            {"grammar": 'start: "a"'},
        ):
            await answers(stub.Generate(ask(**constraint)))
    assert all(each.grammar is not None for each in verifier.opens)


async def test_what_it_says_of_itself() -> None:
    async with serving(generations(ScriptedVerifier(), (7,))) as channel:
        stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)
        model = await stub.GetModelInfo(pb.GetModelInfoRequest())
        assert (model.served_model_name, model.max_context_length) == ("scripted", 4096)
        assert list(model.eos_token_ids) == [7] and model.is_generation
        assert (await stub.GetServerInfo(pb.GetServerInfoRequest())).uptime_seconds >= 0
        assert (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
        asked = health_pb2.HealthCheckRequest(service=SERVICE)
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Embed(pb.EmbedRequest())
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_tokenizer_is_an_archive_of_its_files() -> None:
    async with called(ScriptedVerifier()) as stub:
        found = [
            await answers(stub.GetTokenizer(common_pb2.GetTokenizerRequest())) for _ in range(2)
        ]
    data = b"".join(part.data for part in found[0])
    assert found[0][-1].sha256 == hashlib.sha256(data).hexdigest() == found[1][-1].sha256
    assert {part.sha256 for part in found[0][:-1]} <= {""}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("tokenizer.json") == TOKENIZER_FILE.read_bytes()


async def test_without_its_package_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "smg_grpc_proto", None)
    monkeypatch.delitem(sys.modules, servicer.__name__)
    monkeypatch.delattr(vllm_engine, "servicer")
    by = handlers(generations(ScriptedVerifier()), TOKENIZER_FILE)
    with pytest.raises(ConfigError, match=r"foredraft\[vllm-engine\]"):
        RpcServer(Calls(by, Admission((), lambda: 0.0), 1), CONFIG)
