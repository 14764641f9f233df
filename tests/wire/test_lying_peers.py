"""The clients believe no answer that the contract excludes."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from drafter_service.client import DrafterClient
from foredraft.codec import common as common_codec
from foredraft.codec import drafter as drafter_codec
from foredraft.errors import (
    CorruptModelOutput,
)
from foredraft.messages import DraftBlock, Round, Verdict
from foredraft.types import Guess
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc, verifier_pb2
from tests.support import verifiers
from tests.support.drafters import (
    ScriptedLM,
    asking,
    counting,
    engine_of,
    opening,
)
from tests.support.verifiers import VOCAB, CountingModel, round_after
from verifier_service.client import VerifierStream

PREFIX = (3, 4, 5)


class LyingDrafter(drafter_pb2_grpc.DrafterServiceServicer):
    """Answers every proposal with what `lie` makes of the right block."""

    def __init__(self, lie):
        self.lie = lie

    async def Draft(self, request_iterator, context):
        opened = drafter_codec.draft_opened_to_pb(
            engine_of(ScriptedLM(counting)).open(opening("s", (1,)))[1]
        )
        await anext(request_iterator)
        yield drafter_pb2.DraftResponse(opened=opened)
        async for message in request_iterator:
            request = drafter_codec.propose_from_pb(message.propose)
            block = DraftBlock(request.base, (1, 2), generated_len=2, guesses=(Guess(1, 3, 1.0),))
            yield drafter_pb2.DraftResponse(block=drafter_codec.draft_block_to_pb(self.lie(block)))


@pytest.mark.parametrize(
    "lie",
    [
        lambda b: replace(b, tokens=(1, 16)),
        lambda b: replace(b, tokens=(1, 2, 3)),
        lambda b: replace(b, guesses=(Guess(1, 16, 1.0),)),
        lambda b: replace(b, guesses=(Guess(2, 3, 1.0),)),
        lambda b: replace(b, guesses=(Guess(1, 3, 1.5),)),
        lambda b: replace(b, guesses=(Guess(1, 3, 1.0), Guess(0, 3, 1.0))),
        lambda b: replace(b, generated_len=7),
        lambda b: replace(b, base=replace(b.base, round=9)),
        lambda b: replace(b, parents=(1, 0)),
    ],
)
async def test_a_lying_drafter_is_found_out(lie):
    server = grpc.aio.server()
    drafter_pb2_grpc.add_DrafterServiceServicer_to_server(LyingDrafter(lie), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with DrafterClient(f"127.0.0.1:{port}") as client:
        stream = await client.open(opening("s", PREFIX))
        with pytest.raises(CorruptModelOutput):
            await stream.propose(asking("s", PREFIX, 3, 2))
    await server.stop(None)


async def verdict_through_the_client(request: Round, verdict: verifier_pb2.Verdict) -> Verdict:
    """Return what the client makes of a peer's verdict."""
    answer = verifier_pb2.VerifyResponse(verdict=verdict)
    opened = verifier_pb2.VerifyResponse(
        opened=verifier_pb2.VerifyOpened(model=common_codec.model_to_pb(CountingModel().info))
    )

    class Call:
        answers = iter([opened, answer])

        async def write(self, message: verifier_pb2.VerifyRequest) -> None: ...

        async def read(self) -> verifier_pb2.VerifyResponse:
            return next(self.answers)

    stream = VerifierStream(Call(), verifiers.opening())
    await stream.start()
    return await stream.verify(request)


@pytest.mark.parametrize("change", ["base", "accepted", "tokens", "length"])
async def test_the_client_believes_no_verdict_that_the_contract_excludes(change):
    request = round_after((1, 2, 3), (4, 5))
    answer = verifier_pb2.Verdict(
        base=common_codec.base_to_pb(request.base), accepted=1, next_tokens=[6]
    )
    if change == "base":
        answer.base.prefix_hash ^= 1
    elif change == "accepted":
        answer.accepted = 3
    elif change == "tokens":
        answer.next_tokens[0] = VOCAB
    else:
        answer.next_tokens.append(7)
    with pytest.raises(CorruptModelOutput):
        await verdict_through_the_client(request, answer)


@pytest.mark.parametrize(
    ("parents", "accepted", "path", "believed"),
    [
        ((-1, -1, 1), 2, (1, 2), True),
        ((-1, -1, 1), 1, (), True),
        ((), 2, (0, 1), True),
        # No branch: two siblings, a grandchild alone, out of order, past the end, a gap.
        ((-1, -1, 1), 2, (), False),
        ((-1, -1, 1), 1, (2,), False),
        ((-1, -1, 1), 2, (2, 1), False),
        ((-1, -1, 1), 1, (3,), False),
        ((), 2, (0, 2), False),
        # As many indices as tokens are kept, or none.
        ((-1, -1, 1), 1, (1, 2), False),
    ],
)
async def test_the_client_believes_only_branches_of_its_tree(parents, accepted, path, believed):
    request = round_after((1, 2, 3), (4, 5, 6), parents)
    answer = verifier_pb2.Verdict(
        base=common_codec.base_to_pb(request.base), accepted=accepted, next_tokens=[6], path=path
    )
    if believed:
        assert (await verdict_through_the_client(request, answer)).path == path
    else:
        with pytest.raises(CorruptModelOutput):
            await verdict_through_the_client(request, answer)
