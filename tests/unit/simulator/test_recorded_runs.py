"""Recorded runs: written, read, refused, and played."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from foredraft.errors import ConfigError, CorruptModelOutput
from foredraft_simulator.acceptance.config import RecordedConfig
from foredraft_simulator.acceptance.recorded import Recorded, node_rates
from foredraft_simulator.models.drafter import block_of
from foredraft_simulator.models.texts import right
from foredraft_simulator.recorded_runs.answers import recorded_request
from foredraft_simulator.recorded_runs.costs import arrivals_of, costs_of, played, rising
from foredraft_simulator.recorded_runs.records import (
    Header,
    RecordedRequest,
    RecordedRun,
    read_run,
    write_run,
)
from foredraft_simulator.scenario.scenario import Scenario

TIMES = ("began_s", "draft_wait_s", "verify_s", "verifier_queue_s", "verifier_s", "drafter_s")


def answered(kept: list[int], offered: int = 4, **changes: Any) -> dict[str, Any]:
    """Return a round as a server's answer has it."""
    return {
        "k": offered,
        "draft": {"tokens": [5] * offered, "kept": kept},
        "tokens": [{}] * (len(kept) + 1),
        "bought": offered,
        "source": "drafter" if offered else "none",
        "led_by": "verifier",
        "ahead": "hit",
        "price": {"sessions": 1, "pass_s": 0.01, "row_s": 0.001, "draft_s": 0.0, "drafting": 1},
        "reason": "it pays",
        **dict.fromkeys(TIMES, 0.5),
        **changes,
    }


def request(*rounds: dict[str, Any]) -> RecordedRequest:
    return recorded_request(0.25, 12, 0.8, 0.1, 2.0, rounds)


ONE = request(answered([], 0), answered([0, 2]), answered([0, 1, 2, 3]))


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_run(path, Header(model="m"), [ONE, ONE])
    assert read_run(path) == RecordedRun(header=Header(model="m"), requests=(ONE, ONE))
    assert (ONE.output_tokens, ONE.rounds[1].kept) == (9, (0, 2))


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (0, {"format": "other"}, ":1: format"),
        (0, {"version": 2}, ":1: version"),
        (0, {"unknown": 1}, ":1: unknown"),
        (1, {"prompt_tokens": 0}, ":2: prompt_tokens"),
        (1, {"rounds": []}, ":2: rounds"),
        (1, {"output_tokens": 5}, ":2: line"),
        (1, {"seconds": -1}, ":2: seconds"),
        (1, {"seconds": float("nan")}, ":2: seconds"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, line: int, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path, Header(), [ONE])
    lines = [json.loads(each) for each in path.read_text().splitlines()]
    lines[line] |= change
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(ConfigError, match=said):
        read_run(path)


@pytest.mark.parametrize("kept", [[2, 1], [4], [0, 0]])
def test_a_round_that_cannot_be_is_no_recorded_run(kept: list[int]) -> None:
    with pytest.raises(CorruptModelOutput, match="rounds"):
        request(answered(kept))


# Processes that share the tests have to name them alike: no time in the compressed bytes.
CUT = gzip.compress(b"x", mtime=0)[:9]


@pytest.mark.parametrize("data", [b"", b"\n", b"{", b"[]", b"\xff\xfe", CUT])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_no_bytes_do_more_than_be_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"a\.jsonl"):
        read_run(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        read_run(tmp_path / "none.jsonl")


def test_drafts_keep_what_was_recorded_at_their_offset() -> None:
    played = Recorded(RecordedRun(header=Header(), requests=(ONE,)), 0)
    first = played.draft(0, 1, 4)
    assert first.kept == [True, False, True, False]
    assert played.draft(7, 4, 4).kept == [True] * 4
    # The text begins anew after its end.
    assert played.draft(0, 9 + 1, 4).kept == first.kept
    assert sum(first.last) == pytest.approx(1.0)
    assert first.expected == [1.0, 0.5, 0.5, 0.5]
    assert played.guess_rate == 1.0


def test_between_recorded_rounds_long_ones_are_played_no_more_often() -> None:
    """At an offset within it a long round would be found more often than a short one."""
    long, short = answered([0, 1, 2, 3]), answered([], 4)
    played = Recorded(RecordedRun(header=Header(), requests=(request(*[long, short] * 200),)), 0)
    within = [at for at in range(1200) if at % 6 not in (0, 5)]
    share = sum(any(played.draft(0, at, 4).kept) for at in within) / len(within)
    assert share == pytest.approx(0.5, abs=0.06)


def test_a_draft_ends_where_no_node_was_verified() -> None:
    once = RecordedRun(header=Header(), requests=(request(answered([0], 4, bought=2)),))
    assert Recorded(once, 0).draft(0, 0, 4).kept == [True, False]


def test_rates_are_of_the_nodes_that_were_verified() -> None:
    rounds = request(answered([0], 4, bought=1), answered([0, 1], 2)).rounds
    assert node_rates(rounds) == [1.0, 1.0]


def test_a_tree_s_kept_nodes_are_a_branch() -> None:
    played = Recorded(RecordedRun(header=Header(), requests=(ONE,)), 0)
    block = block_of(played.draft(0, 1, 4), 20)
    assert block.parents == (-1, 0, 0, 2)
    assert [block.tokens[0], block.tokens[2]] == [right(20), right(21)]


def test_costs_are_those_of_sessions_alone() -> None:
    """A first round reads the prompt; a plain round has a pass for each token."""
    first = answered([], 0, verifier_s=0.12)
    plain = answered([], 0, verifier_s=0.03, tokens=[{}] * 3, verify_s=0.04, verifier_queue_s=0.0)
    drafted = answered([0], verifier_s=0.02, verify_s=0.03, verifier_queue_s=0.0, drafter_s=0.004)
    run = RecordedRun(header=Header(), requests=(request(first, plain, drafted),))
    costs = costs_of(run)
    # One row, five rows, and a prompt of 12 tokens.
    assert costs.verifier.rows == (1, 5, 12)
    assert costs.verifier.seconds == pytest.approx((0.01, 0.02, 0.12))
    assert costs.drafter.seconds == (0.004,)
    assert costs.message_s == pytest.approx(0.005)
    assert costs.handling_s == 0.0


def test_costs_need_a_session_alone() -> None:
    shared = answered([0], price={"sessions": 4, "pass_s": 0.1, "row_s": 0.1, "draft_s": 0.0})
    run = RecordedRun(header=Header(), requests=(request(shared, shared),))
    with pytest.raises(ConfigError, match="alone"):
        costs_of(run)


def test_a_recorded_run_is_simulated_as_it_was() -> None:
    """The same arrivals and lengths; every text is the target's."""
    run = RecordedRun(header=Header(), requests=(ONE, ONE))
    scenario = played(Scenario(), RecordedConfig(run=Path("unread")), costs_of(run))
    assert scenario.verifier.curve is not None
    assert arrivals_of(run) == [(0.25, 12, 9)] * 2


def test_a_curve_does_not_fall() -> None:
    curve = rising({1: [0.3], 8: [0.1, 0.3], 4: [0.5]})
    assert curve.rows == (1, 4, 8) and curve.seconds == pytest.approx((0.3, 0.3, 0.3))
    assert rising({2: [0.2], 1: [0.1, 0.1]}).seconds == pytest.approx((0.1, 0.2))
