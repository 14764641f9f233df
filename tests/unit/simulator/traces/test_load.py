"""Shapes and transformations of traces, and what a name on a command line stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft_simulator.traces.arrival import Arrival, Trace
from foredraft_simulator.traces.named import named_trace
from foredraft_simulator.traces.shapes import ShapeConfig, shaped
from foredraft_simulator.traces.transform import clipped, first, rate_scaled, time_scaled

TRACE = Trace((Arrival(0.0, 100, 20), Arrival(2.0, 300, 50), Arrival(3.0, 7, 900)), "t")


def count(trace: Trace, start: float, end: float) -> int:
    return sum(start <= each.time_s < end for each in trace.arrivals)


def test_shapes_have_their_rates() -> None:
    steady = shaped(ShapeConfig(shape="steady", rate=20, duration_s=200))
    # 4,000 on average: five standard deviations are 316.
    assert abs(len(steady.arrivals) - 4000) < 316
    ramp = shaped(ShapeConfig(shape="ramp", rate=1, peak=40, duration_s=300))
    thirds = [count(ramp, at, at + 100) for at in (0, 100, 200)]
    assert thirds[1] > 1.5 * thirds[0] and thirds[1] > 1.5 * thirds[2]
    burst = shaped(ShapeConfig(shape="burst", rate=1, peak=40, duration_s=400))
    assert count(burst, 0, 160) < 250 < 1200 < count(burst, 160, 200)
    day = shaped(ShapeConfig(shape="day", rate=1, peak=40, duration_s=200))
    assert count(day, 80, 120) > 5 * count(day, 0, 40)


def test_lengths_have_their_means() -> None:
    config = ShapeConfig(shape="steady", rate=50, duration_s=400, prompt_tokens=500)
    arrivals = shaped(config).arrivals
    assert sum(each.prompt_tokens for each in arrivals) / len(arrivals) == pytest.approx(
        500, rel=0.05
    )
    alike = shaped(config.model_copy(update={"sigma": 0.0})).arrivals
    assert {each[1:] for each in alike} == {(500, 128)}


def test_a_shape_is_a_function_of_its_seed() -> None:
    config = ShapeConfig(shape="day")
    assert shaped(config, 3) == shaped(config, 3) != shaped(config, 4)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"shape": "wave"}, "shape"),
        ({"shape": "ramp", "peak": 0.5}, "configuration"),
        ({"shape": "steady", "rate": 1e4, "duration_s": 1e6}, "configuration"),
        ({"shape": "steady", "hight": 1}, "hight"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(values: dict, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ShapeConfig, values)
    assert caught.value.param == path


def test_time_scaled() -> None:
    assert [each.time_s for each in time_scaled(TRACE, 0.5).arrivals] == [0.0, 1.0, 1.5]


def test_clipped_shortens_the_prompt_first() -> None:
    assert [each[1:] for each in clipped(TRACE, 60).arrivals] == [(40, 20), (10, 50), (1, 59)]
    assert clipped(TRACE, 10_000) == TRACE


def test_first() -> None:
    assert first(TRACE, 2).arrivals == TRACE.arrivals[:2]


def test_a_denser_trace_has_the_load_s_shape() -> None:
    ramp = shaped(ShapeConfig(shape="ramp", rate=1, peak=10, duration_s=600))
    denser = rate_scaled(ramp, 3.5)
    for at in range(0, 600, 100):
        assert count(denser, at, at + 100) == pytest.approx(
            3.5 * count(ramp, at, at + 100), rel=0.1
        )


_TRACES = st.lists(
    st.builds(Arrival, st.floats(0, 1e4), st.integers(1, 999), st.integers(1, 999)), min_size=1
).map(lambda found: Trace(tuple(sorted(found)), "t"))


@given(_TRACES, st.floats(0.0, 4.0), st.integers(2, 2000))
def test_whatever_is_transformed_is_a_trace(trace: Trace, factor: float, context: int) -> None:
    for found in (rate_scaled(trace, factor), clipped(trace, context), time_scaled(trace, factor)):
        times = [each.time_s for each in found.arrivals]
        assert times == sorted(times) and all(time >= 0 for time in times)
        assert all(min(each[1:]) >= 1 for each in found.arrivals)
    assert all(sum(each[1:]) <= context for each in clipped(trace, context).arrivals)
    whole = int(factor)
    assert whole * len(trace.arrivals) <= len(rate_scaled(trace, factor).arrivals)
    assert len(rate_scaled(trace, factor).arrivals) <= (whole + 1) * len(trace.arrivals)


def test_names(tmp_path: Path) -> None:
    assert named_trace("azure-code").source == "azure-code"
    assert named_trace("steady").arrivals
    ramp = named_trace("ramp:peak=2,rate=1,duration_s=100", seed=1)
    assert ramp == shaped(ShapeConfig(shape="ramp", peak=2, rate=1, duration_s=100), 1)
    file = tmp_path / "one.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,3,4\n")
    assert named_trace(str(file)).arrivals == (Arrival(0.0, 3, 4),)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere.csv", "neither a file nor one of azure-conv, azure-code, steady"),
        ("ramp:peak", "peak is no setting"),
        ("ramp:shape=day", "no setting"),
        ("ramp:height=3", "height: unknown key"),
        ("ramp:peak=x", "peak: "),
    ],
)
def test_names_of_nothing(name: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        named_trace(name)
