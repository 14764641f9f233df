"""A modelled device's seconds, and passes that take them."""

from __future__ import annotations

import pytest

from foredraft.pacing.config import PaceConfig, Work
from foredraft.pacing.pacer import Pacer, SteppedClock, pace_gauges

# Reading the weights takes 2 s, a token of KV 0.1 s, a row 0.5 s.
PACE = PaceConfig(
    weight_bytes=20,
    flops_per_token=1,
    kv_bytes_per_token=1,
    bandwidth=20,
    peak_flops=4,
    bandwidth_fraction=0.5,
    flops_fraction=0.5,
    overhead_s=0.25,
    session_s=0.01,
)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work(1, 0, 1), 0.26 + 2.0),
        (Work(1, 30, 1), 0.26 + 5.0),
        (Work(4, 0, 4), 0.29 + 2.0),
        (Work(40, 0, 4), 0.29 + 20.0),
    ],
)
def test_a_pass_takes_what_is_longer_of_reading_and_computing(work: Work, seconds: float) -> None:
    assert PACE.pass_s(work) == pytest.approx(seconds)


def test_a_pass_lasts_as_modelled_whatever_its_own_work_takes() -> None:
    clock = SteppedClock()
    pacer = Pacer(PACE.model_copy(update={"slowdown": 10}), clock.now, clock.sleep)
    work = Work(1, 0, 1)
    with pacer.passing(work, work):
        clock.sleep(3.0)
    assert clock.now() == pytest.approx(22.6)
    found = pacer.gauges()
    assert (found["paced_passes"], found["late_passes"], found["overrun_s"]) == (1, 0, 0)
    assert found["modelled_s"] == pytest.approx(22.6)


def test_late_passes_and_what_they_took_longer_are_counted() -> None:
    clock = SteppedClock()
    pacer = Pacer(PACE, clock.now, clock.sleep)
    with pacer.passing(Work(1, 0, 1), Work(1, 0, 1)):
        clock.sleep(4.0)
    assert clock.now() == 4.0
    assert pacer.gauges()["late_passes"] == 1
    assert pacer.gauges()["overrun_s"] == pytest.approx(4 - 2.26)


def test_prefill_is_what_a_pass_takes_longer_than_its_rounds() -> None:
    clock = SteppedClock()
    pacer = Pacer(PACE, clock.now, clock.sleep)
    with pacer.passing(Work(41, 0, 2), Work(1, 0, 1)):
        pass
    with pacer.passing(Work(4, 0, 1), Work(0, 0, 0)):
        pass
    found = pacer.gauges()
    assert found["prefill_s"] == pytest.approx(0.27 + 20.5 - 2.26 + 2.26)
    assert (found["paced_rounds"], found["round_rows"]) == (1, 1)


def test_a_model_that_is_not_paced_has_no_gauges() -> None:
    assert pace_gauges(object()) == {}
    assert pace_gauges(Pacer(PACE))["paced_passes"] == 0
