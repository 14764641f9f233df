"""`foredraft record`: requests to a running server, and a file of what each of their rounds did."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.client import completion_body, failure
from foredraft.errors import Unavailable
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import PromptsOption, prompts

if TYPE_CHECKING:
    import aiohttp

    from foredraft_simulator.recorded_runs.records import RecordedRequest

app = typer.Typer(add_completion=False)


@app.command()
def record(
    out: Annotated[Path, typer.Argument(help="File to write: .jsonl, or .jsonl.gz.")],
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:8000",
    requests: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of requests.")] = 32,
    clients: Annotated[int, typer.Option(min=1, max=4096, help="Requests at once.")] = 1,
    trace: Annotated[
        str | None,
        typer.Option(help="Send requests at a trace's times, with its output lengths, instead."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    file: PromptsOption = None,
    note: Annotated[str, typer.Option(help="A note in the recorded run.")] = "",
) -> None:
    """Record a run of a server, for the simulator and for others (docs/recorded_runs.md)."""
    from foredraft_simulator.recorded_runs.records import Header, write_run
    from foredraft_simulator.traces.named import named_trace

    arrivals: Sequence[tuple[float, int]] = [(0.0, max_tokens)] * requests
    at_once = clients
    if trace is not None:
        named = named_trace(trace).arrivals[:requests]
        arrivals = [(each.time_s, min(max_tokens, each.output_tokens)) for each in named]
        at_once = len(arrivals)
    texts = list(islice(cycle(prompts(len(arrivals), file)), len(arrivals)))
    model, found = asyncio.run(recorded(url, texts, arrivals, at_once, temperature))
    write_run(out, Header(model=model, note=note), found)
    tokens = sum(each.output_tokens for each in found)
    typer.echo(f"{out}: {len(found)} requests, {tokens} tokens")


async def recorded(
    url: str,
    texts: Sequence[str],
    arrivals: Sequence[tuple[float, int]],
    clients: int,
    temperature: float,
) -> tuple[str, list[RecordedRequest]]:
    """Return the model's name, and every request, of which come a time and the most tokens.

    Raise Unavailable where no server answers, and the first failure's message.
    """
    import aiohttp

    gate = asyncio.Semaphore(clients)
    timeout, connector = aiohttp.ClientTimeout(total=3600), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        try:
            async with http.get(f"{url}/v1/models") as response:
                model = str((await response.json())["data"][0]["id"])
        except (aiohttp.ClientError, KeyError, IndexError, ValueError) as error:
            raise Unavailable(f"no server answers at {url}: {error}") from None
        began = time.perf_counter()

        async def one(number: int) -> RecordedRequest:
            at, longest = arrivals[number]
            await asyncio.sleep(began + at - time.perf_counter())
            async with gate:
                sampling = SamplingParams(temperature=temperature, seed=number)
                body = completion_body(texts[number], sampling, longest, {"rounds": True})
                return await _request(http, url, body, temperature, began)

        found = await asyncio.gather(*(one(number) for number in range(len(arrivals))))
    return model, list(found)


async def _request(
    http: aiohttp.ClientSession, url: str, body: dict[str, Any], temperature: float, began: float
) -> RecordedRequest:
    from foredraft_simulator.recorded_runs.answers import recorded_request

    sent = time.perf_counter()
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    rounds: list[dict[str, Any]] = []
    first: float | None = None
    prompt_tokens = 0
    async with http.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise failure((await response.json()).get("error"))
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise failure(chunk["error"])
            for choice in chunk["choices"]:
                rounds += choice["rounds"]
                if first is None and choice["token_ids"]:
                    first = time.perf_counter()
            prompt_tokens = (chunk.get("usage") or {}).get("prompt_tokens", prompt_tokens)
    ended = time.perf_counter()
    if first is None:
        raise Unavailable("a request had no tokens")
    return recorded_request(
        sent - began, prompt_tokens, temperature, first - sent, ended - sent, rounds
    )
