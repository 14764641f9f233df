"""Traces from files: every format, what failed is dropped, every fault is named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ConfigError
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.traces.lines import MAX_LINE_BYTES
from foredraft_simulator.traces.named import SHIPPED
from foredraft_simulator.traces.reading import read_trace, spread

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
NEWER = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_azure(tmp_path: Path) -> None:
    # Seven digits of a second, a mark at the start, CRLF, and a last line without an end.
    text = (
        "\ufeff" + AZURE.replace("\n", "\r\n") + "2023-11-16 18:15:46.6805900,374,44\r\n"
        "2023-11-16 18:15:50.9951690,396,109"
    )
    trace = read_trace(written(tmp_path, text))
    assert [each[1:] for each in trace.arrivals] == [(374, 44), (396, 109)]
    assert trace.arrivals[0].time_s == 0
    assert trace.arrivals[1].time_s == pytest.approx(4.314579, abs=1e-5)
    assert trace.source == "trace (Azure)" and trace.failed == 0


def test_azure_of_2024_has_a_zone(tmp_path: Path) -> None:
    text = AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:01+02:00,2399,6\n"
    assert read_trace(written(tmp_path, text)).duration_s == pytest.approx(0.99007, abs=1e-5)


@pytest.mark.parametrize("header", [BURSTGPT, NEWER])
def test_burstgpt_without_its_failures(tmp_path: Path, header: str) -> None:
    more = "" if header == BURSTGPT else '"a,b",1.5,'
    text = (
        header + f"5,{more}ChatGPT,472,18,490,Conversation log\n"
        f"45.0,{more}ChatGPT,1087,0,1087,Conversation log\n"
        f"118,{more}GPT-4,417,276,693,API log\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.arrivals == (Arrival(0.0, 472, 18), Arrival(113.0, 417, 276))
    assert trace.failed == 1


def mooncake(*rows: tuple[float, int, int]) -> str:
    return "".join(
        json.dumps(
            {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": [0]}
        )
        + "\n"
        for at, prompt, output in rows
    )


def test_mooncake_stamps_are_spread_over_their_steps(tmp_path: Path) -> None:
    rows = [(at, 10 + nth, 5) for at in (0, 3000, 6000, 60000) for nth in range(4)]
    trace = read_trace(written(tmp_path, mooncake(*rows)), seed=1)
    times = [each.time_s for each in trace.arrivals]
    assert times == sorted(times) and len(set(times)) == len(times)
    for nth, time in enumerate(times):
        start = (0, 3, 6, 60)[nth // 4]
        # The pause before the last stamp is longer than a step: it stays one.
        assert start <= time < start + 3
    assert [each.prompt_tokens for each in trace.arrivals] == [10, 11, 12, 13] * 4
    again = read_trace(written(tmp_path, mooncake(*rows)), seed=1)
    other = read_trace(written(tmp_path, mooncake(*rows)), seed=2)
    assert again == trace and other != trace


def test_precise_stamps_stay(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, mooncake((0, 1, 1), (277, 1, 1), (471, 1, 1))))
    assert [each.time_s for each in trace.arrivals] == pytest.approx([0.0, 0.277, 0.471])


def test_no_more_than_the_first_are_read(tmp_path: Path) -> None:
    text = mooncake((0, 1, 1), (1, 2, 2)) + "nonsense\n"
    assert len(read_trace(written(tmp_path, text), limit=2).arrivals) == 2


def test_requests_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    text = AZURE + "2023-11-16 18:15:50,2,2\n2023-11-16 18:15:46,1,1\n"
    assert read_trace(written(tmp_path, text)).arrivals == (Arrival(0.0, 1, 1), Arrival(4.0, 2, 2))


GOOD = "2023-11-16 18:15:46,1,1\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "what"),
    [
        ("", None, "trace", "empty"),
        (AZURE, None, "trace", "no request"),
        (AZURE + "2023-11-16 18:15:46,1,0\n", None, "trace", "no request"),
        ("a,b\n1,2\n", 1, "header", "no format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens,TIMESTAMP\n", 1, "header", "no format"),
        ("{}\n", 1, "header", "no format"),
        ("{\n", 1, "line", "not JSON"),
        (AZURE + GOOD + "2023-11-16 18:15:46,1\n", 3, "line", "2 cells, and the header has 3"),
        (AZURE + '2023-11-16 18:15:46,"1,1\n', 2, "line", "not CSV"),
        (AZURE + "yesterday,1,1\n", 2, "TIMESTAMP", "'yesterday' is no time"),
        (AZURE + GOOD + "2023-11-16 18:15:46,-1,1\n", 3, "ContextTokens", "'-1' is no number"),
        (AZURE + "2023-11-16 18:15:46,1,1e3\n", 2, "GeneratedTokens", "is no number"),
        (AZURE + "2023-11-16 18:15:46,1,99999999999\n", 2, "GeneratedTokens", "is no number"),
        (AZURE + GOOD + "2031-11-16 18:15:46,1,1\n", 3, "TIMESTAMP", "more than a year"),
        (BURSTGPT + "soon,m,1,1,2,l\n", 2, "Timestamp", "is no number"),
        (BURSTGPT + "nan,m,1,1,2,l\n", 2, "Timestamp", "is no time"),
        (mooncake((0, 1, 1)) + "[]\n", 2, "line", "not a JSON object"),
        (mooncake((0, 1, 1)) + "[" * 5000 + "\n", 2, "line", "not JSON"),
        (mooncake((0, 1, 1)) + '{"timestamp": true}\n', 2, "timestamp", "True is no number"),
        (mooncake((0, 1, 1)) + '{"timestamp": 1}\n', 2, "input_length", "None is no number"),
        (mooncake((10**400, 1, 1)), 1, "timestamp", "is no time"),
        (AZURE.encode() + b"\xff\n", 2, "line", "not UTF-8"),
        (AZURE + "\0\n", 2, "line", "byte 0"),
        (AZURE + "1" * (MAX_LINE_BYTES + 1), 2, "line", "longer than"),
    ],
)
def test_a_fault_is_named_with_its_place(
    tmp_path: Path, text: str | bytes, line: int | None, field: str, what: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    place = f"{path}: " if line is None else f"{path}:{line}: {field}: "
    assert str(caught.value).startswith(place) and what in str(caught.value)
    assert caught.value.param == field


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_trace(tmp_path / "none.csv")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


_HEADERS = st.sampled_from([AZURE, BURSTGPT, mooncake((0, 1, 1)), "", GOOD])
_CELLS = st.one_of(st.text(max_size=6), st.integers().map(str), st.floats().map(str))
_LINES = st.one_of(st.text(max_size=40), st.lists(_CELLS, max_size=8).map(",".join))


@given(_HEADERS, st.one_of(st.lists(_LINES, max_size=4).map("\n".join), st.binary(max_size=60)))
def test_whatever_a_file_holds_it_is_read_or_refused(scratch: Path, header: str, rest) -> None:
    raw = rest if isinstance(rest, bytes) else rest.encode("utf-8", "surrogatepass")
    try:
        trace = read_trace(written(scratch, header.encode() + raw))
    except ConfigError as error:
        assert error.param and str(error).startswith(str(scratch))
        return
    times = [each.time_s for each in trace.arrivals]
    assert times == sorted(times) and times[0] == 0
    assert all(each.prompt_tokens >= 1 and each.output_tokens >= 1 for each in trace.arrivals)


_ARRIVALS = st.lists(
    st.builds(Arrival, st.floats(0, 1e6), st.integers(1, 9), st.integers(1, 9)), min_size=1
)


@given(_ARRIVALS, st.randoms())
def test_spreading_changes_only_times_and_never_their_order(found, rng) -> None:
    ordered = sorted(found)
    after = spread(ordered, rng)
    assert [each[1:] for each in after] == [each[1:] for each in ordered]
    times = [each.time_s for each in after]
    assert times == sorted(times)
    assert all(new.time_s >= old.time_s for new, old in zip(after, ordered, strict=True))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_cuts_cover_an_hour(name: str) -> None:
    trace = read_trace(SHIPPED[name])
    assert len(trace.arrivals) == 1000 and trace.failed == 0
    assert 3400 < trace.duration_s < 3600
