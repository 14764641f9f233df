"""GenerationService from another program: one answer, streamed, and the same over HTTP.

ingress: {grpc: {port: 8001}}    # in the configuration

FOREDRAFT_GRPC=127.0.0.1:8001 python examples/grpc_client.py
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request

import grpc

from foredraft.v1 import common_pb2, generation_pb2, generation_pb2_grpc

ADDRESS = os.environ.get("FOREDRAFT_GRPC", "127.0.0.1:8001")
URL = os.environ.get("FOREDRAFT_URL", "http://127.0.0.1:8000")
PROMPT, SEED, TOKENS = "def mean(values):", 1, 48


async def main() -> None:
    """Print an answer as it comes, then whether HTTP has the same."""
    async with grpc.aio.insecure_channel(ADDRESS) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        model = await stub.GetModel(generation_pb2.GetModelRequest())
        print(f"{model.name}, up to {model.model.max_len} tokens")
        request = generation_pb2.GenerateRequest(
            input=generation_pb2.Input(text=PROMPT),
            sampling=common_pb2.SamplingParams(temperature=0.8, seed=SEED),
            max_tokens=TOKENS,
        )
        text, last = "", None
        try:
            # The deadline reaches the models: what is left at its end is freed.
            async for last in stub.GenerateStream(request, timeout=60):
                text += last.text
                print(last.text, end="", flush=True)
        except grpc.aio.AioRpcError as error:
            field = dict(error.trailing_metadata() or ()).get("foredraft-param")
            raise SystemExit(f"{error.code().name}: {error.details()} ({field})") from None
    assert last is not None
    drafted = last.speculation
    print(f"\n{drafted.accepted_tokens} of {last.usage.completion_tokens} tokens were drafted")
    print("identical:", text == over_http())


def over_http() -> str:
    """Return the text of the same request over HTTP."""
    body = {"prompt": PROMPT, "temperature": 0.8, "seed": SEED, "max_tokens": TOKENS}
    asked = urllib.request.Request(
        f"{URL}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: str = json.load(answer)["choices"][0]["text"]
    return found


asyncio.run(main())
