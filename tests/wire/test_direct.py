"""Direct rounds over gRPC, in one process: a verifier asks the drafter itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from deployments.orchestrator.config import (
    BreakerConfig,
    FixedConfig,
    GoodputConfig,
    OrchestratorConfig,
    RetryConfig,
)
from deployments.orchestrator.pipeline import generate
from deployments.orchestrator.report import SpeculationReport
from deployments.orchestrator.request import GenerationRequest, StepEvent, Summary
from drafter_service import server as drafter_server
from drafter_service.batcher import Batcher
from drafter_service.client import DrafterClient, DrafterStream
from drafter_service.config import DrafterConfig
from drafter_service.core.lattice import BlockScores
from drafter_service.engine import DrafterEngine
from foredraft import codec, direct_codec
from foredraft.direct import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.errors import CorruptModelOutput, InvalidRequest, Unavailable
from foredraft.limits import MAX_DIRECT_ROUNDS
from foredraft.types import (
    Acceptance,
    Base,
    DraftBlock,
    DraftOpen,
    Origin,
    Proposal,
    SamplingParams,
    Verdict,
    VerifyOpen,
)
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc
from tests.unit.drafter.scripted import INFO, ScriptedLM, scores_of, strategies_of
from tests.unit.verifier.scripted import CountingModel, make_engine, opening, round_after
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient, VerifierStream
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner

VOCAB = 16
TOKENIZER = "tokenizer"
PROMPT = (3, 4, 5)
NEW = 40


def half_right(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """It counts, but after a third token it is wrong."""
    tokens = [(prefix[-1] + 1 + slot + (slot >= 2)) % VOCAB for slot in range(num_slots)]
    return scores_of([{token: 0.9, (token + 3) % VOCAB: 0.05} for token in tokens])


def right(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    """It counts."""
    return scores_of([{(prefix[-1] + 1 + slot) % VOCAB: 0.9, 0: 0.01} for slot in range(num_slots)])


class Watched(ScriptedLM):
    """It can be made to wait, or to break, from its n-th pass on."""

    def __init__(self, script: Callable[..., BlockScores] = half_right) -> None:
        super().__init__(script, slots=8)
        self.capabilities = replace(self.capabilities, max_len=1000, cache_tokens=1000)
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False

    def draft(self, requests: Sequence[object]) -> list[BlockScores]:
        self.gate.wait(5)
        if self.broken:
            raise RuntimeError("the model broke")
        return super().draft(requests)  # type: ignore[arg-type]


class SlowModel(CountingModel):
    """A target that can be watched while it runs."""

    def __init__(self) -> None:
        super().__init__(1000, VOCAB)
        self.info = replace(self.info, tokenizer_hash=TOKENIZER)

    def forward(self, segments):  # type: ignore[no-untyped-def]
        time.sleep(0.002)
        return super().forward(segments)


async def drafter(model: Watched | None = None, vocab: int = VOCAB) -> drafter_server.DrafterServer:
    model = model or Watched()
    config = DrafterConfig(model=Path("unused"))
    info = replace(INFO, tokenizer_hash=TOKENIZER, max_len=1000, vocab_size=vocab)
    make = strategies_of(model).make
    batcher = Batcher(lambda: DrafterEngine(model, make, info, 64, 16), config.max_queue)
    return await drafter_server.serve_engine(batcher, config)


async def verifier(
    connect: Callable[[str], DrafterClient] | None = DrafterClient,
) -> verifier_server.VerifierServer:
    config = VerifierConfig(model=Path(), grace_s=0.5)
    runner = Runner(lambda: make_engine(SlowModel(), kv_tokens=8192))
    return await verifier_server.serve_engine(config, runner, connect=connect)


class Pool:
    """A port that opens on the newest server; asked counts the drafts that pass by here."""

    def __init__(self, client: Callable[[str], DrafterClient | VerifierClient]) -> None:
        self._client = client
        self.servers: list[drafter_server.DrafterServer | verifier_server.VerifierServer] = []
        self._clients: list[DrafterClient | VerifierClient] = []
        self.streams: list[DrafterStream | VerifierStream] = []
        self.scheme = ""
        self.asked = 0

    async def open(self, request):  # type: ignore[no-untyped-def]
        if not self.servers:
            raise Unavailable("none is running")
        client = self._client(f"{self.scheme}127.0.0.1:{self.servers[-1].port}")
        self._clients.append(client)
        stream = await client.open(request)
        self.streams.append(stream)
        if isinstance(stream, DrafterStream):
            propose = stream.propose

            async def counted(request):  # type: ignore[no-untyped-def]
                self.asked += 1
                return await propose(request)

            stream.propose = counted  # type: ignore[method-assign]
        return stream

    async def kill(self) -> None:
        await self.servers.pop().stop()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        while self.servers:
            await self.kill()


@dataclass
class Pair:
    drafters: Pool
    verifiers: Pool

    def gauges(self) -> float:
        """The sessions that are open anywhere."""
        open_drafts = sum(server.stats()["streams"] for server in self.drafters.servers)
        return open_drafts + sum(s.stats()["sessions"] for s in self.verifiers.servers)


@asynccontextmanager
async def pair(
    model: Watched | None = None, connect: Callable[[str], DrafterClient] | None = DrafterClient
) -> AsyncIterator[Pair]:
    both = Pair(Pool(DrafterClient), Pool(VerifierClient))
    both.drafters.servers.append(await drafter(model))
    both.verifiers.servers.append(await verifier(connect))
    try:
        yield both
    finally:
        await both.drafters.close()
        await both.verifiers.close()


DIRECT = OrchestratorConfig(
    adl=FixedConfig(k=6),
    direct_rounds=4,
    draft_deadline_ms=2000,
    breaker=BreakerConfig(cooldown_s=0.01, max_cooldown_s=0.02),
    verifier_retry=RetryConfig(attempts=8, initial_s=0.01, max_s=0.02),
)

Watcher = Callable[[int], object]


async def decoded(
    both: Pair,
    config: OrchestratorConfig = DIRECT,
    temperature: float = 0.0,
    new: int = NEW,
    stops: tuple[int, ...] = (),
    speculate: bool = True,
    watch: Watcher | None = None,
) -> tuple[list[int], SpeculationReport]:
    """Decode one request; watch is awaited after each event, with its number."""
    request = GenerationRequest(
        "s", PROMPT, SamplingParams(temperature, seed=7), new, stops, speculate=speculate
    )
    tokens: list[int] = []
    report = None
    number = 0
    async with asyncio.timeout(20):
        events = generate(request, both.drafters, both.verifiers, config)
        async for event in events:
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
                number += 1
                if watch is not None and (waiting := watch(number)) is not None:
                    await waiting  # type: ignore[misc]
            if isinstance(event, Summary):
                report = event.report
    assert report is not None
    return tokens, report


PLAIN_TOKENS = [(PROMPT[-1] + 1 + at) % VOCAB for at in range(NEW)]


@pytest.mark.parametrize("temperature", [0.0, 0.8, 3.0])
@pytest.mark.parametrize("proposal", [Proposal.COUPLED, Proposal.TREE, Proposal.CPS])
async def test_tokens_are_those_of_plain_decoding_and_no_draft_passes_by(
    temperature: float, proposal: Proposal
) -> None:
    async with pair() as both:
        plain, _ = await decoded(both, temperature=temperature, speculate=False)
        config = DIRECT.model_copy(update={"proposal": proposal})
        tokens, report = await decoded(both, config, temperature)
        assert tokens == plain
        assert both.drafters.asked == 0
        assert report.draft_rounds > 4 and report.drafter_attaches == 1
        if temperature == 0:
            assert plain == PLAIN_TOKENS and report.mat > 1
        await until(lambda: both.gauges() == 0)


@pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.BLOCK])
async def test_other_rules_decide_as_where_drafts_pass_by(acceptance: Acceptance) -> None:
    changes = {"acceptance": acceptance, "proposal": Proposal.SAMPLED}
    async with pair() as both:
        found = []
        for rounds in (0, 4):
            config = DIRECT.model_copy(update={**changes, "direct_rounds": rounds})
            config = config.model_copy(update={"run_ahead_least": 1.0})
            found.append((await decoded(both, config, 0.8))[0])
        assert found[0] == found[1]


@pytest.mark.parametrize("new", [1, 2, 3, 7])
async def test_a_text_ends_where_it_was_to(new: int) -> None:
    async with pair() as both:
        assert (await decoded(both, new=new))[0] == PLAIN_TOKENS[:new]
        stopped, _ = await decoded(both, stops=(PLAIN_TOKENS[new],))
        assert stopped == PLAIN_TOKENS[: new + 1]
        await until(lambda: both.gauges() == 0)


async def test_a_lost_drafter_costs_drafts_alone_and_another_one_takes_over() -> None:
    async with pair() as both:

        async def kill(number: int) -> None:
            if number == 3:
                await both.drafters.kill()
            if number == 7:
                both.drafters.servers.append(await drafter())
                await asyncio.sleep(0.05)

        tokens, report = await decoded(both, watch=kill, new=200)
        assert tokens == [(PROMPT[-1] + 1 + at) % VOCAB for at in range(200)]
        assert report.drafter_attaches == 2 and report.origins[Origin.PLAIN] > 0
        assert report.decisions[-1].length == 6


async def test_a_drafter_that_breaks_is_left() -> None:
    model = Watched()
    async with pair(model) as both:

        def spoil(number: int) -> None:
            model.broken = number in (3, 4)

        tokens, report = await decoded(both, watch=spoil, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert report.drafter_attaches >= 2


async def test_a_late_draft_is_not_waited_for() -> None:
    model = Watched()
    config = DIRECT.model_copy(update={"draft_deadline_ms": 30.0})
    async with pair(model) as both:

        def hold(number: int) -> None:
            (model.gate.clear if number in (3, 4, 5) else model.gate.set)()

        tokens, report = await decoded(both, config, watch=hold, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert report.origins[Origin.PLAIN] > 0 and report.draft_rounds > 10


async def test_a_lost_verifier_is_replaced_in_the_middle_of_direct_rounds() -> None:
    async with pair() as both:

        async def kill(number: int) -> None:
            if number == 4:
                both.verifiers.servers.append(await verifier())
                await both.verifiers.servers.pop(0).stop()

        tokens, report = await decoded(both, watch=kill)
        assert tokens == PLAIN_TOKENS
        assert report.verifier_moves == 1 and both.drafters.asked == 0


async def test_a_draining_verifier_is_left_after_the_round_under_way() -> None:
    async with pair() as both:
        draining: list[asyncio.Task[None]] = []

        async def drain(number: int) -> None:
            if number == 4:
                both.verifiers.servers.append(await verifier())
                draining.append(asyncio.create_task(both.verifiers.servers.pop(0).drain(5.0)))
                await asyncio.sleep(0.02)

        tokens, report = await decoded(both, watch=drain)
        assert tokens == PLAIN_TOKENS and report.verifier_moves == 1
        await draining[0]


async def test_without_a_way_to_drafters_drafts_pass_by() -> None:
    async with pair(connect=None) as both:
        tokens, report = await decoded(both)
        assert tokens == PLAIN_TOKENS
        assert both.drafters.asked > 0 and report.mat > 1


async def test_where_the_verifier_cannot_reach_drafters_drafts_pass_by() -> None:
    async with pair(connect=lambda _: DrafterClient("127.0.0.1:1")) as both:
        tokens, report = await decoded(both, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert both.drafters.asked > 4 and report.mat > 1


async def test_drafts_that_need_work_here_pass_by() -> None:
    # Its vocabulary is padded: what it has beyond the target's is left out here.
    async with pair() as both:
        await both.drafters.kill()
        both.drafters.servers.append(await drafter(vocab=VOCAB + 1))
        tokens, report = await decoded(both, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert both.drafters.asked >= report.draft_rounds > 4 and report.mat > 1


@pytest.mark.parametrize("deadline_ms", [1e-4, 1e6])
async def test_deadlines_that_do_not_travel_are_cut(deadline_ms: float) -> None:
    config = DIRECT.model_copy(update={"draft_deadline_ms": deadline_ms})
    async with pair() as both:
        assert (await decoded(both, config))[0] == PLAIN_TOKENS


async def test_drafts_of_a_drafter_whose_address_does_not_travel_pass_by() -> None:
    async with pair() as both:
        both.drafters.scheme = "ipv4:"
        tokens, report = await decoded(both)
        assert tokens == PLAIN_TOKENS and report.drafter_attaches == 1
        assert both.drafters.asked >= report.draft_rounds > 4


async def test_lengths_are_adapted_and_plain_rounds_come_between() -> None:
    config = DIRECT.model_copy(
        update={"adl": GoodputConfig(lengths=(0, 2, 6), probe_rounds=1, probe_tokens=8)}
    )
    async with pair() as both:
        for _ in range(3):
            tokens, report = await decoded(both, config, new=120)
            assert tokens[:NEW] == PLAIN_TOKENS and len(tokens) == 120
        assert {decision.length for decision in report.decisions} & {2, 6}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_hybrid_asks_the_drafter_where_the_text_does_not_tell(temperature: float) -> None:
    config = DIRECT.model_copy(update={"proposal": Proposal.HYBRID})
    model = Watched()
    async with pair(model) as both:
        plain, _ = await decoded(both, temperature=temperature, new=100, speculate=False)
        tokens, report = await decoded(both, config, temperature, new=100)
        assert tokens == plain and both.drafters.asked == 0
        # It counts from 0 to 15 over and over: seen once, it is known.
        asked = len([batch for batch in model.passes if batch[0].num_slots])
        assert 0 < asked < report.draft_rounds
        assert both.drafters.servers[0].stats()["blocks"] == asked


@pytest.mark.parametrize(("script", "hits"), [(right, True), (half_right, False)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_the_next_draft_is_asked_for_ahead(
    script: Callable[..., BlockScores], hits: bool, temperature: float
) -> None:
    config = DIRECT.model_copy(update={"run_ahead_least": 0.0})
    async with pair(Watched(script)) as both:
        plain, _ = await decoded(both, temperature=temperature, new=100, speculate=False)
        tokens, report = await decoded(both, config, temperature, new=100)
        assert tokens == plain and both.drafters.asked == 0
        assert report.run_ahead_asked > 4
        assert bool(report.run_ahead_hits) == hits


async def test_another_drafter_is_asked_from_the_next_draft_on() -> None:
    async with pair() as both:
        first, second = both.drafters.servers[0], await drafter()
        both.drafters.servers.append(second)
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(first.port))
            await stream.allow(Direct(1, 200, 1, 1_000_000, 0))
            await stream.next_direct()
            await stream.attach(source(second.port))
            await until(lambda: second.stats()["blocks"] > 0)
            assert first.stats()["streams"] == 0
            while isinstance(told := await stream.next_direct(), DirectRound):
                pass
            assert told == DirectEnded(1)


async def test_a_slow_reader_stops_the_verifier_after_what_was_allowed() -> None:
    async with pair() as both:
        server = both.verifiers.servers[0]

        async def read_slowly(number: int) -> None:
            if number == 2:
                await asyncio.sleep(0.3)
                done = server.stats()["rounds"]
                await asyncio.sleep(0.1)
                assert server.stats()["rounds"] == done < 2 + 2 * 4 + DIRECT.read_ahead + 2

        tokens, _ = await decoded(both, watch=read_slowly, new=200)
        assert len(tokens) == 200


async def test_a_client_that_goes_frees_both_sides() -> None:
    async with pair() as both:
        request = GenerationRequest("s", PROMPT, SamplingParams(), 400)
        events = generate(request, both.drafters, both.verifiers, DIRECT)
        async for _ in events:
            break
        await events.aclose()
        await until(lambda: both.gauges() == 0)


async def test_many_at_once_get_what_they_get_alone() -> None:
    async with pair() as both:
        alone = [await decoded(both, temperature=t) for t in (0.0, 0.7, 1.3)]
        config = DIRECT
        together = await asyncio.gather(
            *(decoded(both, config, temperature=t) for t in (0.0, 0.7, 1.3) * 2)
        )
        assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone] * 2


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


# The verifier's side of the contract alone.


def source(port: int) -> DraftSource:
    draft_open = DraftOpen("s", (), SamplingParams(), Proposal.COUPLED, 60)
    return DraftSource(f"127.0.0.1:{port}", draft_open)


@asynccontextmanager
async def stream_of(server: verifier_server.VerifierServer) -> AsyncIterator[VerifierStream]:
    client = VerifierClient(f"127.0.0.1:{server.port}")
    yield await client.open(opening(PROMPT))
    await client.close()


async def test_an_order_replaces_the_one_before_and_is_answered_once() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(port))
            await stream.allow(Direct(1, 3, 4, 1_000_000, 0))
            rounds = [await stream.next_direct() for _ in range(3)]
            assert [told.left for told in rounds] == [1, 0, 0]
            assert [told.block.base.round for told in rounds] == [0, 1, 2]
            assert await stream.next_direct() == DirectEnded(1)
            await stream.allow(Direct(2, MAX_DIRECT_ROUNDS, 4, 1_000_000, 3))
            first = await stream.next_direct()
            assert isinstance(first, DirectRound) and first.block.base.round == 3
            await stream.allow(Direct(3, 0, 1, 1, 0))
            while isinstance(told := await stream.next_direct(), DirectRound):
                pass
            assert told == DirectEnded(3)


async def test_rounds_and_direct_rounds_alternate_on_one_stream() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            asked = round_after(PROMPT, (6, 7, 9))
            verdict = await stream.verify(asked)
            assert await stream.verify(asked) == verdict
            await stream.attach(source(port))
            await stream.allow(Direct(1, 1, 4, 1_000_000, 1))
            told = await stream.next_direct()
            assert isinstance(told, DirectRound)
            assert told.block.tokens[:2] == (9, 10) and told.verdict.accepted == 2
            assert await stream.next_direct() == DirectEnded(1)
            text = (*PROMPT, 6, 7, 8, 9, 10, 11)
            assert (await stream.verify(round_after(text, number=2))).next_tokens == (12,)


async def test_a_round_while_direct_rounds_are_under_way_ends_the_session() -> None:
    async with pair() as both:
        port = both.drafters.servers[0].port
        async with stream_of(both.verifiers.servers[0]) as stream:
            await stream.attach(source(port))
            await stream.allow(Direct(1, 9, 4, 1_000_000, 0))
            with pytest.raises((InvalidRequest, CorruptModelOutput)):
                while True:
                    await stream.verify(round_after(PROMPT))


@pytest.mark.parametrize(
    ("where", "fault"),
    [("127.0.0.1:1", DirectFault.LOST), (None, DirectFault.UNSUPPORTED)],
)
async def test_a_drafter_that_cannot_be_asked_is_said(
    where: str | None, fault: DirectFault
) -> None:
    async with pair() as both, stream_of(both.verifiers.servers[0]) as stream:
        if where:
            await stream.attach(replace(source(1), address=where))
        await stream.allow(Direct(1, 9, 4, 5_000_000, 0))
        assert await stream.next_direct() == DirectEnded(1, fault)
        assert (await stream.verify(round_after(PROMPT))).next_tokens == (6,)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"direct": {"order": 1, "rounds": 257, "num_tokens": 1, "deadline_us": 1}}, "rounds"),
        ({"direct": {"order": 1, "rounds": 1, "num_tokens": 0, "deadline_us": 1}}, "num_tokens"),
        ({"direct": {"order": 1, "rounds": 1, "num_tokens": 1}}, "deadline_us"),
        ({"drafter": {"address": "http://127.0.0.1:1"}}, "drafter.address"),
        ({"drafter": {"address": "unix:/tmp/socket"}}, "drafter.address"),
        ({"drafter": {"address": "a" * 300 + ":1"}}, "drafter.address"),
    ],
)
async def test_a_bad_order_names_its_field(message: dict[str, object], param: str) -> None:
    async with pair() as both:
        address = f"127.0.0.1:{both.verifiers.servers[0].port}"
        opened = verifier_pb2.VerifyRequest(open=codec.verify_open_to_pb(opening(PROMPT)))
        bad = verifier_pb2.VerifyRequest(**message)  # type: ignore[arg-type]
        async with grpc.aio.insecure_channel(address) as channel:
            call = verifier_pb2_grpc.VerifierServiceStub(channel).Verify(iter([opened, bad]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert param in dict(caught.value.trailing_metadata())["foredraft-param"]
        await until(lambda: both.gauges() == 0)


class LyingVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Tells of one direct round, as `lie` makes it, and then that nothing is under way."""

    def __init__(self, lie: Callable[[DirectRound], DirectRound]) -> None:
        self.lie = lie

    async def Verify(self, requests, context):  # type: ignore[no-untyped-def]
        opened: VerifyOpen = codec.verify_open_from_pb((await anext(requests)).open)
        info = codec.model_to_pb(CountingModel(vocab=VOCAB).info)
        yield verifier_pb2.VerifyResponse(opened={"model": info})
        base = Base("s", 0, len(opened.prefix), 1)
        block = DraftBlock(base, (6, 7), generated_len=2)
        told = self.lie(DirectRound(block, Verdict(base, 1, (8,)), 2, 0))
        yield verifier_pb2.VerifyResponse(direct_round=direct_codec.direct_round_to_pb(told))
        async for _ in requests:
            pass


@pytest.mark.parametrize(
    "lie",
    [
        lambda t: replace(t, num_tokens=1),
        lambda t: replace(t, block=replace(t.block, tokens=(6, VOCAB))),
        lambda t: replace(t, block=replace(t.block, parents=(0, -1))),
        lambda t: replace(t, verdict=replace(t.verdict, accepted=3)),
        lambda t: replace(t, verdict=replace(t.verdict, next_tokens=(VOCAB,))),
        lambda t: replace(t, verdict=replace(t.verdict, base=Base("s", 1, 3, 1))),
    ],
)
async def test_the_client_believes_no_direct_round_that_the_contract_excludes(
    lie: Callable[[DirectRound], DirectRound],
) -> None:
    server = grpc.aio.server()
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(LyingVerifier(lie), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = VerifierClient(f"127.0.0.1:{port}")
    stream = await client.open(opening(PROMPT))
    with pytest.raises(CorruptModelOutput):
        await stream.next_direct()
    await client.close()
    await server.stop(None)
