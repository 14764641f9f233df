"""Rules of the protocol as checks that run against any server, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import grpc

from foredraft.rpc import options
from foredraft.rpc.transport import Role, transport_of
from foredraft.v1 import common_pb2

# Of one check; a silent server fails it.
_MOST_S = 60.0

P = TypeVar("P")


class Broken(Exception):
    """A rule that the server breaks, in words."""


class Rule(NamedTuple, Generic[P]):
    """One rule: a name, a sentence of docs/protocol.md, and what finds out."""

    name: str
    text: str
    check: Callable[[P], Awaitable[None]]


class Outcome(NamedTuple):
    """What came of one rule; fault is empty where it holds."""

    name: str
    text: str
    fault: str


async def run(peer: P, rules: Sequence[Rule[P]]) -> list[Outcome]:
    """Return the outcome of every rule, one after the other, each on streams of its own."""
    return [Outcome(rule.name, rule.text, await _fault(rule, peer)) for rule in rules]


async def _fault(rule: Rule[P], peer: P) -> str:
    try:
        async with asyncio.timeout(_MOST_S):
            await rule.check(peer)
    except Broken as broken:
        return str(broken)
    except TimeoutError:
        return f"no answer for {_MOST_S:g} s"
    except grpc.aio.AioRpcError as error:
        return f"the stream ended with {error.code().name}: {error.details()}"
    return ""


def require(holds: object, fault: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(fault)


def sample_text(model: common_pb2.ModelInfo) -> tuple[int, ...]:
    """Return 6 tokens of a model's vocabulary, none of which ends a text."""
    ends, vocab = set(model.eos_token_ids), model.vocab_size
    wanted = (token for token in range(vocab // 3, vocab) if token not in ends)
    return tuple(islice(wanted, 6))


@asynccontextmanager
async def channel(address: str, peer: Role, mtls: Path | None) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a channel to a peer, with an orchestrator's certificate of a folder if there is one."""
    transport = transport_of(mtls, Role.ORCHESTRATOR)
    async with transport.channel(address, peer, options.CHANNEL) as opened:
        yield opened


class Talk:
    """One stream: messages out, answers in; a draining notice is passed over."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, message: Any) -> None:
        """Send a message; what is wrong with the stream is raised where its answer is read."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return

    async def answer(self, kind: str) -> Any:
        """Return the next answer, which must be of the kind; raise AioRpcError for a status."""
        while True:
            message = await self._call.read()
            if message is grpc.aio.EOF:
                raise Broken(f"the stream ended where {kind} was due")
            found = message.WhichOneof("message")
            if found == "draining":
                continue
            require(found == kind, f"{found} came where {kind} was due")
            return getattr(message, kind)

    async def refusal(self) -> grpc.StatusCode:
        """Return the status that the stream ends with; answers before it are passed over."""
        try:
            # Whoever takes the message has nothing more to wait for.
            await self._call.done_writing()
            while await self._call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        except asyncio.InvalidStateError:
            return await self._call.code()
        return grpc.StatusCode.OK

    async def end(self) -> None:
        """End the stream from this side, and wait until the server has, too."""
        await self._call.done_writing()
        while await self._call.read() is not grpc.aio.EOF:
            pass


@asynccontextmanager
async def talk(method: Callable[[], Any]) -> AsyncIterator[Talk]:
    """Yield a stream of a stub's method; it is cancelled on the way out."""
    call = method()
    try:
        yield Talk(call)
    finally:
        call.cancel()


async def refused(stream: Talk, code: grpc.StatusCode, what: str) -> None:
    """Raise Broken unless the stream ends with the status."""
    found = await stream.refusal()
    require(found is code, f"{what} is answered with {found.name}, not with {code.name}")
