"""Servers that pass a service's messages on, changed: what a faulty one would say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from foredraft.v1 import drafter_pb2_grpc, verifier_pb2_grpc

# What becomes of a message, None: it is not passed on.
Change = Callable[[Any], Any]


def same(message: Any) -> Any:
    """Change nothing."""
    return message


class _Passing:
    """Passes one method's streams on; the real server's status comes out as it is, or as code."""

    def __init__(
        self, method: Any, info: Any, asks: Change, answers: Change, code: grpc.StatusCode | None
    ) -> None:
        self._method, self._info = method, info
        self._asks, self._answers, self._code = asks, answers, code

    async def about(self, request: Any, context: Any) -> Any:
        return self._answers(await self._info(request))

    async def stream(self, requests: Any, context: Any) -> None:
        call = self._method()
        forward = asyncio.create_task(self._forward(requests, call))
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                changed = self._answers(answer)
                if changed is not None:
                    await context.write(changed)
        except grpc.aio.AioRpcError as error:
            await context.abort(self._code or error.code(), error.details())
        finally:
            forward.cancel()
            call.cancel()

    async def _forward(self, requests: Any, call: Any) -> None:
        async for request in requests:
            changed = self._asks(request)
            if changed is not None:
                await call.write(changed)
        await call.done_writing()


class _Drafter(drafter_pb2_grpc.DrafterServiceServicer):
    def __init__(self, passing: _Passing, texts: _Passing) -> None:
        self.Draft, self.DrafterInfo = passing.stream, passing.about
        self.DraftTexts = texts.stream


class _Verifier(verifier_pb2_grpc.VerifierServiceServicer):
    def __init__(self, passing: _Passing) -> None:
        self.Verify, self.VerifierInfo = passing.stream, passing.about


@asynccontextmanager
async def lying(
    port: int,
    service: str,
    asks: Change = same,
    answers: Change = same,
    code: grpc.StatusCode | None = None,
) -> AsyncIterator[str]:
    """Yield the address of a proxy of the "drafter" or "verifier" at the port."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        server = grpc.aio.server()
        if service == "drafter":
            drafter = drafter_pb2_grpc.DrafterServiceStub(channel)
            passing = _Passing(drafter.Draft, drafter.DrafterInfo, asks, answers, code)
            texts = _Passing(drafter.DraftTexts, drafter.DrafterInfo, asks, answers, code)
            servicer = _Drafter(passing, texts)
            drafter_pb2_grpc.add_DrafterServiceServicer_to_server(servicer, server)
        else:
            verifier = verifier_pb2_grpc.VerifierServiceStub(channel)
            passing = _Passing(verifier.Verify, verifier.VerifierInfo, asks, answers, code)
            verifier_pb2_grpc.add_VerifierServiceServicer_to_server(_Verifier(passing), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield address
        finally:
            await server.stop(None)
