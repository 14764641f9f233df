"""`foredraft conformance`: does a drafter or verifier keep the protocol's rules?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import grpc
import typer
from rich.console import Console

from foredraft.errors import Unavailable
from foredraft.rpc.token import token_in
from foredraft.rpc.transport import Role
from foredraft_cli.conformance import drafter as drafters
from foredraft_cli.conformance import drafter_texts as texts
from foredraft_cli.conformance import verifier as verifiers
from foredraft_cli.conformance.drafter_peer import DrafterPeer
from foredraft_cli.conformance.suite import Outcome, channel, run
from foredraft_cli.conformance.verifier_peer import VerifierPeer

app = typer.Typer(add_completion=False, help="Hold a server to the protocol (docs/protocol.md).")

AddressArgument = Annotated[str, typer.Argument(help="Where it serves gRPC, host:port.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MtlsOption = Annotated[
    Path | None, typer.Option(help="Folder of certificates, where the server asks for one.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="The token's file, where the server asks for it."),
]


@app.command()
def drafter(
    address: AddressArgument,
    as_json: JsonOption = False,
    mtls: MtlsOption = None,
    token: TokenOption = None,
) -> None:
    """Hold a drafter to the protocol; exit 1 where it breaks a rule."""
    _report(asyncio.run(of_drafter(address, mtls, token_in(token))), as_json)


@app.command()
def verifier(
    address: AddressArgument,
    as_json: JsonOption = False,
    mtls: MtlsOption = None,
    token: TokenOption = None,
) -> None:
    """Hold a verifier to the protocol; exit 1 where it breaks a rule."""
    _report(asyncio.run(of_verifier(address, mtls, token_in(token))), as_json)


async def of_drafter(address: str, mtls: Path | None = None, token: str = "") -> list[Outcome]:
    """Return the outcome of each rule; raise Unavailable where no drafter answers."""
    async with channel(address, Role.DRAFTER, mtls) as opened:
        peer = DrafterPeer(opened, token)
        try:
            await peer.look()
        except grpc.aio.AioRpcError as error:
            raise _silent(address, error) from None
        rules = drafters.RULES + (texts.RULES if peer.info.max_texts else ())
        return await run(peer, rules)


async def of_verifier(address: str, mtls: Path | None = None, token: str = "") -> list[Outcome]:
    """Return the outcome of each rule; raise Unavailable where no verifier answers."""
    async with channel(address, Role.VERIFIER, mtls) as opened:
        peer = VerifierPeer(opened, token)
        try:
            await peer.look()
        except grpc.aio.AioRpcError as error:
            raise _silent(address, error) from None
        return await run(peer, verifiers.RULES)


def _silent(address: str, error: grpc.aio.AioRpcError) -> Unavailable:
    return Unavailable(f"{address} gives no info: {error.code().name}: {error.details()}")


def _report(outcomes: list[Outcome], as_json: bool) -> None:
    broken = sum(bool(outcome.fault) for outcome in outcomes)
    if as_json:
        typer.echo(json.dumps([outcome._asdict() for outcome in outcomes], indent=1))
    else:
        console = Console(soft_wrap=True, highlight=False)
        for name, text, fault in outcomes:
            console.print(f"[red]BROKEN[/] {name}: {text}" if fault else f"ok     {name}: {text}")
            if fault:
                console.print(f"       {fault}", markup=False)
        console.print(f"{len(outcomes) - broken} of {len(outcomes)} rules hold")
    if broken:
        raise typer.Exit(1)
