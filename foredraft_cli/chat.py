"""`foredraft chat`: a conversation in the terminal with a running server."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from foredraft.errors import ForedraftError, Unavailable
from foredraft.types import Origin
from foredraft_cli.colours import STYLES, legend
from foredraft_cli.remote import URL, KeyOption, Server, UrlArgument

app = typer.Typer(add_completion=False)

_HELP = "/new begins anew, /plain switches drafts off and on, /exit or Ctrl+D ends."


@app.command()
def main(
    url: UrlArgument = URL,
    key: KeyOption = "",
    system: Annotated[str, typer.Option(help="A system message.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 512,
    temperature: Annotated[float, typer.Option(min=0)] = 0.7,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of each answer; default: random.")
    ] = None,
) -> None:
    """Talk to a running server; each token is coloured by how it came about."""
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    if seed is not None:
        settings["seed"] = seed
    asyncio.run(converse(url, key, system, settings))


async def converse(url: str, key: str, system: str, settings: dict[str, Any]) -> None:
    """Read lines from standard input until it ends; raise Unavailable where nobody answers."""
    console = Console(highlight=False, soft_wrap=True)
    begin: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    messages, drafts = list(begin), True
    async with Server(url, key) as server:
        reply = await server.get("/v1/models")
        if reply.status != 200:
            raise Unavailable(f"{server.url}: {reply.error}")
        console.print(f"{reply.body['data'][0]['id']} at {server.url}. {_HELP}", style="dim")
        console.print(legend())
        while (line := await _line()) is not None:
            if line in ("/exit", "/quit"):
                return
            if line == "/new":
                messages = list(begin)
            elif line == "/plain":
                drafts = not drafts
                console.print(f"drafts {'on' if drafts else 'off'}", style="dim")
            elif line:
                messages.append({"role": "user", "content": line})
                body = {**settings, "messages": messages, "speculative": {"enabled": drafts}}
                try:
                    messages.append(
                        {"role": "assistant", "content": await _answer(server, body, console)}
                    )
                except ForedraftError as error:
                    messages.pop()
                    console.print(str(error), style="red", markup=False)


async def _line() -> str | None:
    """Return the next line, None at the end of the input."""
    try:
        prompt = "> " if sys.stdin.isatty() else ""
        return (await asyncio.to_thread(input, prompt)).strip()
    except EOFError:
        return None


async def _answer(server: Server, body: dict[str, Any], console: Console) -> str:
    """Print an answer as it comes, then how fast it was; return its text."""
    speculative = {**body["speculative"], "rounds": True}
    asked = {**body, "speculative": speculative, "stream_options": {"include_usage": True}}
    text, began, first = "", time.perf_counter(), 0.0
    used: dict[str, Any] = {}
    async for chunk in server.stream("/v1/chat/completions", asked):
        used = chunk.get("usage") or used
        for choice in chunk["choices"]:
            added = choice["delta"].get("content") or ""
            if added and not first:
                first = time.perf_counter() - began
            _show(console, added, choice.get("rounds") or ())
            text += added
    seconds, count = time.perf_counter() - began, used.get("completion_tokens", 0)
    figures = f"{count} tokens in {seconds:.1f} s, the first after {1e3 * first:.0f} ms"
    console.print(f"\n{figures}, {count / max(seconds, 1e-9):.0f} tokens/s\n", style="dim")
    return text


def _show(console: Console, added: str, rounds: Iterable[dict[str, Any]]) -> None:
    """Print what was added, token by token; what no token released has no colour."""
    for one in rounds:
        for token in one["tokens"]:
            console.print(Text(token["text"], STYLES[Origin(token["origin"])]), end="")
            added = added[len(token["text"]) :]
    console.print(Text(added), end="")
