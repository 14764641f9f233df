"""GenerationService with a real client: HTTP's texts and errors, deadlines, cancels, keys, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.keys import Key, add_key, read_keys
from deployments.ingress.openai.routes import application, handlers
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig, TlsConfig
from deployments.ingress.rpc.server import RpcServer
from deployments.ingress.rpc.servicer import SERVICE
from foredraft.errors import Overloaded
from foredraft.v1 import generation_pb2 as pb
from foredraft.v1 import generation_pb2_grpc
from tests.support.certificates import write_certificates
from tests.support.http import listening
from tests.support.orchestrator.peers import ScriptedVerifier, continuation
from tests.support.waiting import eventually
from tests.unit.ingress.test_routes import TOKENIZER, TOKENIZER_FILE, generations

PROMPT = (3, 1, 4, 1, 5)
INPUT = pb.Input(token_ids=pb.TokenIds(ids=PROMPT))
Stub = generation_pb2_grpc.GenerationServiceStub


@asynccontextmanager
async def served(
    verifier: ScriptedVerifier,
    keys: Sequence[Key] = (),
    tls: TlsConfig | None = None,
    max_streams: int = 200,
) -> AsyncIterator[RpcServer]:
    by = handlers(generations(verifier), TOKENIZER_FILE)
    calls = Calls(by, Admission(keys, lambda: 0.0), max_streams)
    server = RpcServer(calls, RpcConfig(port=0, tls=tls, max_streams=max_streams))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def called(verifier: ScriptedVerifier, **options: Any) -> AsyncIterator[Any]:
    async with (
        served(verifier, **options) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Stub(channel)


def ask(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(input=INPUT, **{"max_tokens": 12, **fields})


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value


async def test_a_whole_answer_and_a_streamed_one_are_https() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        whole = await stub.Generate(ask())
        parts = [part async for part in stub.GenerateStream(ask())]
        plain = await stub.Generate(ask(plain=True))
    assert [token.id for token in whole.tokens] == list(continuation(PROMPT, 12))
    assert whole.text == TOKENIZER.decode(list(continuation(PROMPT, 12)))
    assert (whole.finish_reason, whole.usage.prompt_tokens) == ("length", 5)
    assert whole.usage.completion_tokens == 12
    assert "".join(part.text for part in parts) == whole.text == plain.text
    assert [token.id for part in parts for token in part.tokens] == [t.id for t in whole.tokens]
    assert [part.finish_reason for part in parts if part.finish_reason] == ["length"]
    assert parts[-1].usage == whole.usage
    assert whole.speculation.accepted_tokens > 0 == plain.speculation.draft_rounds
    assert {token.origin for token in plain.tokens} == {"plain"}

    async def health() -> dict[str, Any]:
        return {}

    by = handlers(generations(ScriptedVerifier()), TOKENIZER_FILE)
    async with listening(application(by, health)) as url, aiohttp.ClientSession(url) as http:
        body = {"prompt": list(PROMPT), "max_tokens": 12, "temperature": 0}
        async with http.post("/v1/completions", json=body) as answer:
            assert (await answer.json())["choices"][0]["text"] == whole.text


async def test_a_stop_string_ends_the_text() -> None:
    async with called(ScriptedVerifier()) as stub:
        whole = await stub.Generate(ask())
        stopped = await stub.Generate(ask(stop=[whole.text[8:10]]))
    assert stopped.text == whole.text[: whole.text.index(whole.text[8:10])]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": pb.Input()}, "input"),
        ({"input": pb.Input(token_ids=pb.TokenIds(ids=[1 << 31]))}, "input"),
        ({"input": pb.Input(text="")}, "input"),
        ({"input": pb.Input(conversation=pb.Conversation())}, "messages"),
        ({"max_tokens": 1 << 31}, "max_tokens"),
        ({"sampling": {"temperature": -1}}, "temperature"),
        ({"sampling": {"temperature": float("nan")}}, "temperature"),
        ({"logits": {"biases": [1.0]}}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop_token_ids": [1 << 30]}, "stop_token_ids"),
        ({"grammar": {"kind": "bnf", "text": "a"}}, "grammar.kind"),
        ({"cache_salt": "ä"}, "cache_salt"),
    ],
)
async def test_bad_input_is_named(fields: dict[str, Any], param: str) -> None:
    verifier = ScriptedVerifier()
    message = pb.GenerateRequest(**{"input": INPUT, **fields})
    async with called(verifier) as stub:
        for call in (stub.Generate(message), anext(aiter(stub.GenerateStream(message)))):
            error = await status_of(call)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert dict(error.trailing_metadata())["foredraft-param"] == param
    assert not verifier.opens


async def test_tokens_there_and_back_and_the_model() -> None:
    async with called(ScriptedVerifier()) as stub:
        found = await stub.Tokenize(pb.TokenizeRequest(input=pb.Input(text="def f():")))
        assert list(found.token_ids) == TOKENIZER.encode("def f():").ids
        back = await stub.Detokenize(pb.DetokenizeRequest(token_ids=found.token_ids))
        assert back.text == "def f():"
        model = await stub.GetModel(pb.GetModelRequest())
        assert (model.name, model.model.max_len) == ("scripted", 4096)
        error = await status_of(stub.Detokenize(pb.DetokenizeRequest(token_ids=[1 << 30])))
        assert dict(error.trailing_metadata())["foredraft-param"] == "token_ids"
        talk = pb.Conversation(messages=[pb.Message(role="user", content="a")])
        error = await status_of(
            stub.Tokenize(pb.TokenizeRequest(input=pb.Input(conversation=talk)))
        )
        assert "no chat template" in error.details()


def waiting(verifier: ScriptedVerifier) -> asyncio.Event:
    """Have the verifier wait from its second verification on."""
    go_on = asyncio.Event()

    async def before(index: int) -> None:
        if index:
            await go_on.wait()

    verifier.before = before
    return go_on


async def test_a_deadline_ends_the_session() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier) as stub:
        waiting(verifier)
        error = await status_of(stub.Generate(ask(plain=True, max_tokens=40), timeout=0.2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: not verifier.live)


async def test_100_of_100_cancelled_calls_free_their_sessions() -> None:
    verifier = ScriptedVerifier()

    async def slowly(index: int) -> None:
        await asyncio.sleep(0.01)

    verifier.before = slowly
    async with called(verifier) as stub:

        async def left(at: int) -> None:
            """Leave at another time than the others: at once, behind some parts, or between."""
            asked = ask(max_tokens=4000)
            if at % 4 == 3:
                whole = stub.Generate(asked)
                await asyncio.sleep(at / 500)
                whole.cancel()
                return
            call = stub.GenerateStream(asked)
            parts = aiter(call)
            for _ in range(at % 4):
                await anext(parts)
            call.cancel()

        await asyncio.gather(*(left(at) for at in range(100)))
        await eventually(lambda: not verifier.live)
        verifier.before = None
        assert (await stub.Generate(ask())).finish_reason == "length"
    assert len(verifier.opens) > 50


async def test_too_many_calls_are_said_when_to_come_again() -> None:
    verifier = ScriptedVerifier()
    async with called(verifier, max_streams=1) as stub:
        go_on = waiting(verifier)
        first = stub.Generate(ask(plain=True, max_tokens=40))
        await eventually(lambda: bool(verifier.opens))
        error = await status_of(stub.Generate(ask()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        retry = RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.seconds == Overloaded("").retry_after_s
        go_on.set()
        assert (await first).usage.completion_tokens == 40


async def test_keys_are_asked_for(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.yaml", "a")
    async with called(ScriptedVerifier(), keys=read_keys(tmp_path / "keys.yaml")) as stub:
        for metadata in ((), (("authorization", "Bearer no"),)):
            error = await status_of(stub.GetModel(pb.GetModelRequest(), metadata=metadata))
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        known = (("authorization", f"Bearer {key}"),)
        assert (await stub.GetModel(pb.GetModelRequest(), metadata=known)).name == "scripted"


async def test_health_and_reflection() -> None:
    async with (
        served(ScriptedVerifier()) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=SERVICE)
        )
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await server.leave()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        [answer] = [each async for each in stub.ServerReflectionInfo(iter([asked]))]
        assert SERVICE in {each.name for each in answer.list_services_response.service}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Files of an authority, a server and a client that it signed, and another authority's."""
    folder = tmp_path_factory.mktemp("tls")

    write_certificates(folder)
    return lambda name: folder / name


def credentials(of: Callable[[str], Path], ca: str, client: str | None) -> grpc.ChannelCredentials:
    pair = (None, None)
    if client is not None:
        pair = (of(f"{client}.key").read_bytes(), of(f"{client}.crt").read_bytes())
    return grpc.ssl_channel_credentials(of(f"{ca}.crt").read_bytes(), *pair)


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls_and_mutual_tls(certificates: Callable[[str], Path], mutual: bool) -> None:
    tls = TlsConfig(
        keyfile=certificates("server.key"),
        certfile=certificates("server.crt"),
        client_ca=certificates("ca.crt") if mutual else None,
    )
    expected = {("ca", None): not mutual, ("ca", "client"): True, ("other", "client"): False}
    expected[("ca", "stranger")] = not mutual
    async with served(ScriptedVerifier(), tls=tls) as server:
        for (ca, client), works in expected.items():
            address = f"localhost:{server.port}"
            chosen = credentials(certificates, ca, client)
            async with grpc.aio.secure_channel(address, chosen) as channel:
                call = Stub(channel).GetModel(pb.GetModelRequest(), timeout=5)
                if works:
                    assert (await call).name == "scripted"
                else:
                    assert (await status_of(call)).code() is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = Stub(channel).GetModel(pb.GetModelRequest(), timeout=5)
            assert (await status_of(call)).code() is grpc.StatusCode.UNAVAILABLE
