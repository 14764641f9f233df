"""The conformance suite: ours keep the protocol, and planted faults are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import Unavailable
from foredraft.rpc.token import token_in
from foredraft_cli.conformance import command
from foredraft_cli.conformance.command import of_drafter, of_verifier
from foredraft_cli.conformance.suite import Outcome
from tests.support.cluster import free_port
from tests.support.lying_proxy import lying
from tests.wire.test_drafter import serving
from tests.wire.test_verifier import running

Lie = Callable[[Any], Any]


def broken(found: list[Outcome]) -> set[str]:
    return {outcome.name for outcome in found if outcome.fault}


async def test_our_drafter_keeps_every_rule() -> None:
    async with serving() as (server, _):
        assert broken(await of_drafter(f"127.0.0.1:{server.port}")) == set()


async def test_our_verifier_keeps_every_rule() -> None:
    async with running() as (server, _):
        assert broken(await of_verifier(f"127.0.0.1:{server.port}")) == set()


async def test_a_server_that_asks_for_a_token_is_shown_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame" * 4)
    async with serving(token_file=file) as (server, _):
        address = f"127.0.0.1:{server.port}"
        assert broken(await of_drafter(address, token=token_in(file))) == set()
        with pytest.raises(Unavailable, match="a valid token is needed"):
            await of_drafter(address)


async def test_a_proxy_that_changes_nothing_keeps_every_rule() -> None:
    async with serving() as (server, _), lying(server.port, "drafter") as address:
        assert broken(await of_drafter(address)) == set()
    async with running() as (server, _), lying(server.port, "verifier") as address:
        assert broken(await of_verifier(address)) == set()


def on(kind: str, lie: Callable[[Any], None]) -> Lie:
    """Change messages of one kind."""

    def change(message: Any) -> Any:
        fields = message.DESCRIPTOR.oneofs_by_name.get("message")
        if fields is not None and message.WhichOneof("message") == kind:
            lie(getattr(message, kind))
        return message

    return change


def _longer(block: Any) -> None:
    block.tokens.append(1)
    del block.guesses[:]


def _other_base(block: Any) -> None:
    block.base.prefix_hash ^= 1


def _outside(block: Any) -> None:
    block.tokens[0] = 1 << 30


def _no_tree(block: Any) -> None:
    block.parents[:] = range(len(block.tokens))


def _sure(block: Any) -> None:
    block.expected[:] = [1.5] * len(block.tokens)


def _strange_guess(block: Any) -> None:
    if block.guesses:
        block.guesses[0].node = len(block.tokens)


def _endless(message: Any) -> Any:
    """Draft an end of text over and over."""
    told = getattr(message, "opened", message)
    if hasattr(told, "model"):
        told.model.eos_token_ids[:] = [0]
    if hasattr(message, "block") and message.WhichOneof("message") == "block":
        message.block.tokens[:] = [0] * len(message.block.tokens)
    return message


def _other_outcome(blocks: Any) -> None:
    for block in blocks.blocks:
        block.base.round += 1


def _other_model(opened: Any) -> None:
    opened.model.vocab_size += 1


def _mute(message: Any) -> Any:
    """Say no protocol at all."""
    if hasattr(message, "newest_protocol"):
        message.newest_protocol = message.oldest_protocol = 0
    return message


def _shuffled(drafts: Any) -> None:
    drafts.drafts.reverse()


def _forgetful(drafts: Any) -> None:
    for draft in drafts.drafts:
        draft.Clear()
        draft.unknown = True


def _all_knowing(drafts: Any) -> None:
    for draft in drafts.drafts:
        draft.unknown = False


def _patient(message: Any) -> Any:
    """Take any open, as if it were right."""
    if message.WhichOneof("message") == "open":
        message.open.protocol = 1
        message.open.session_id = message.open.session_id[:128] or "s"
    return message


DRAFTER_FAULTS: dict[str, tuple[set[str], dict[str, Any]]] = {
    "drafts longer than asked": ({"block"}, {"answers": on("block", _longer)}),
    "another base": ({"block", "order"}, {"answers": on("block", _other_base)}),
    "unknown tokens": ({"block"}, {"answers": on("block", _outside)}),
    "no tree": ({"block"}, {"answers": on("block", _no_tree)}),
    "no probabilities": ({"block"}, {"answers": on("block", _sure)}),
    "guesses about nothing": ({"block"}, {"answers": on("block", _strange_guess)}),
    "text behind its end": ({"end_of_text"}, {"answers": _endless}),
    "other outcomes": ({"ahead"}, {"answers": on("blocks_ahead", _other_outcome)}),
    "texts in another order": ({"texts"}, {"answers": on("drafts", _shuffled)}),
    "texts that are forgotten": ({"texts", "texts_unknown"}, {"answers": on("drafts", _forgetful)}),
    "texts never unknown": ({"texts_unknown"}, {"answers": on("drafts", _all_knowing)}),
    "another model": ({"open", "texts"}, {"answers": on("opened", _other_model)}),
    "no protocol": ({"info"}, {"answers": _mute}),
    "any protocol": ({"protocol", "open_fields"}, {"asks": _patient}),
    "one status for all": (
        {"open_first", "open_once", "hash", "propose_fields", "texts_fields"},
        {"code": grpc.StatusCode.UNKNOWN},
    ),
}


@pytest.mark.parametrize("fault", DRAFTER_FAULTS)
async def test_a_drafters_fault_is_found(fault: str) -> None:
    rules, lies = DRAFTER_FAULTS[fault]
    async with serving() as (server, _), lying(server.port, "drafter", **lies) as address:
        assert rules <= broken(await of_drafter(address))


def _one_more(verdict: Any) -> None:
    verdict.accepted += 1


def _own_token(verdict: Any) -> None:
    if verdict.accepted:
        verdict.next_tokens[-1] = (verdict.next_tokens[-1] + 1) % 100


def _chatty(verdict: Any) -> None:
    verdict.next_tokens.extend(verdict.next_tokens[-1:] * 64)


def _crooked(verdict: Any) -> None:
    if verdict.path:
        verdict.path[:] = list(verdict.path)[::-1]


def _silent(verdict: Any) -> None:
    del verdict.logprobs[:]


def _late_grant(ended: Any) -> None:
    ended.seq += 1


def _undecided() -> Lie:
    """Answer every other verdict with another token."""
    count = 0

    def change(verdict: Any) -> None:
        nonlocal count
        count += 1
        if count % 2:
            verdict.next_tokens[0] = (verdict.next_tokens[0] + 1) % 100

    return on("verdict", change)


def _stopless(message: Any) -> Any:
    if message.WhichOneof("message") == "open":
        message.open.ClearField("stop_token_ids")
    return message


VERIFIER_FAULTS: dict[str, tuple[set[str], dict[str, Any]]] = {
    "accepts one more": ({"drafts"}, {"answers": on("verdict", _one_more)}),
    "its own token behind drafts": ({"drafts"}, {"answers": on("verdict", _own_token)}),
    "too many tokens": ({"plain"}, {"answers": on("verdict", _chatty)}),
    "a crooked branch": ({"tree"}, {"answers": on("verdict", _crooked)}),
    "another base": ({"plain", "drafts"}, {"answers": on("verdict", _other_base)}),
    "decides anew": ({"repeat"}, {"answers": _undecided()}),
    "no logprobs": ({"logprobs"}, {"answers": on("verdict", _silent)}),
    "another grant": ({"lease"}, {"answers": on("lease_ended", _late_grant)}),
    "another model": ({"open"}, {"answers": on("opened", _other_model)}),
    "no protocol": ({"info"}, {"answers": _mute}),
    "past a stop token": ({"stop"}, {"asks": _stopless}),
    "one status for all": (
        {"open_first", "open_once", "open_fields", "round_fields", "base"},
        {"code": grpc.StatusCode.UNKNOWN},
    ),
}


@pytest.mark.parametrize("fault", VERIFIER_FAULTS)
async def test_a_verifiers_fault_is_found(fault: str) -> None:
    rules, lies = VERIFIER_FAULTS[fault]
    async with running() as (server, _), lying(server.port, "verifier", **lies) as address:
        assert rules <= broken(await of_verifier(address))


def test_nobody_there_is_one_line_and_a_report_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fake(*_: Any) -> list[Outcome]:
        return [Outcome("open", "says", ""), Outcome("hash", "says", "a fault")]

    runner = CliRunner()
    found = runner.invoke(command.app, ["drafter", f"127.0.0.1:{free_port()}"])
    assert "gives no info: UNAVAILABLE" in str(found.exception)
    monkeypatch.setattr(command, "of_verifier", fake)
    found = runner.invoke(command.app, ["verifier", "nowhere:1", "--json"])
    assert found.exit_code == 1 and json.loads(found.output)[1]["fault"] == "a fault"
    found = runner.invoke(command.app, ["verifier", "nowhere:1"])
    assert "1 of 2 rules hold" in found.output and "a fault" in found.output


def test_the_documented_hash_is_the_hash() -> None:
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
    assert f"`0x{hash_prefix((3, 1, 4)):016X}`" in page
