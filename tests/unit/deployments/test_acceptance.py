"""The alarm of the acceptance: when it rises, and over what it is taken."""

from __future__ import annotations

from deployments.observability.acceptance import AcceptanceWatch, Alarm, BandConfig
from foredraft.types import Committed, Origin
from orchestrator.report import PLAIN, RoundStats, SpeculationReport, StatsAccumulator

BAND = BandConfig(low=0.1, high=0.9, positions=100)


def rounds(kept: int, depth: int, count: int) -> SpeculationReport:
    stats = StatsAccumulator(PLAIN)
    for number in range(count):
        tokens = (*[Committed(1, Origin.KEPT)] * kept, Committed(2, Origin.CORRECTION))
        stats.add(tokens, RoundStats(number, depth, kept, depth, depth))
    return stats.report(1.0, 0, 0)


def test_a_stale_drafter_raises_it_once_enough_was_observed() -> None:
    watch = AcceptanceWatch(BAND)
    watch.add(rounds(0, 8, 99))
    assert (watch.rate, watch.alarm) == (0.0, Alarm.WITHIN)
    watch.add(rounds(0, 8, 1))
    assert watch.alarm is Alarm.BELOW


def test_a_text_that_loops_raises_it() -> None:
    watch = AcceptanceWatch(BAND)
    watch.add(rounds(8, 8, 20))
    assert (watch.rate, watch.alarm) == (1.0, Alarm.ABOVE)


def test_positions_behind_a_rejected_one_do_not_count() -> None:
    watch = AcceptanceWatch(BAND)
    # Three accepted and one rejected of each, whatever stood behind it.
    watch.add(rounds(3, 12, 50))
    assert (watch.rate, watch.alarm) == (0.75, Alarm.WITHIN)


def test_old_sessions_give_way() -> None:
    watch = AcceptanceWatch(BAND)
    watch.add(rounds(0, 8, 500))
    for _ in range(20):
        watch.add(rounds(1, 2, 10))
    assert watch.rate == 0.5 and watch.alarm is Alarm.WITHIN


def test_plain_sessions_change_nothing() -> None:
    watch = AcceptanceWatch(BAND)
    watch.add(rounds(0, 0, 0))
    assert (watch.rate, watch.alarm) == (0.0, Alarm.WITHIN)
    watch.add(rounds(0, 8, 200))
    for _ in range(50):
        watch.add(rounds(0, 0, 0))
    assert watch.alarm is Alarm.BELOW
