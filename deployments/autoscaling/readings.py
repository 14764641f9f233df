"""From what replicas report over time to signals: gauges by their last value, counters as rates.

A replica reports a dictionary of numbers (`record_autoscaling_stats`); Serve keeps them as series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from deployments.autoscaling.signals import DrafterSignal, VerifierSignal

S = TypeVar("S")

# (time in seconds, value), oldest first.
Series = Sequence[tuple[float, float]]
# By a metric's name and a replica.
Metrics = Mapping[str, Mapping[str, Series]]


def drafter_signal(of: Callable[[str], Series]) -> DrafterSignal:
    """Return one drafter's signal, given its series by name; raise LookupError where one lacks."""
    return DrafterSignal(
        busy=last(of("busy")),
        drafts_s=rate(of("blocks")),
        draft_s=_mean_s(of, "busy_s", "blocks"),
        wait_s=1e-3 * last(of("queue_wait_ms")),
    )


def verifier_signal(of: Callable[[str], Series]) -> VerifierSignal:
    """Return one verifier's signal, given its series by name; raise LookupError where one lacks."""
    return VerifierSignal(
        busy=last(of("busy")),
        kv=(last(of("kv_used")) + last(of("kv_wanted"))) / max(last(of("kv_total")), 1.0),
        sessions=last(of("sessions")),
        waiting=last(of("queue")),
        rounds_s=rate(of("rounds")),
        kept_s=rate(of("kept")),
        pass_s=_mean_s(of, "pass_s", "passes"),
    )


def signals_of(
    metrics: Metrics, replicas: Iterable[str], read: Callable[[Callable[[str], Series]], S]
) -> tuple[S, ...]:
    """Return the signals of those replicas that have reported all that is read of them."""
    found = []
    for replica in replicas:

        def of(name: str, replica: str = replica) -> Series:
            return metrics[name][replica]

        try:
            found.append(read(of))
        except LookupError:
            continue
    return tuple(found)


def last(series: Series) -> float:
    """Return the newest value; raise IndexError without one."""
    return series[-1][1]


def rate(series: Series) -> float:
    """Return a counter's increase per second, 0 where it began anew; raise IndexError for none."""
    (began, low), (ended, high) = series[0], series[-1]
    return max(0.0, high - low) / (ended - began) if ended > began else 0.0


def _mean_s(of: Callable[[str], Series], seconds: str, number: str) -> float:
    """Return the mean time of recent ones, 0 where there were none or they are not counted."""
    try:
        each_s = rate(of(number))
        return rate(of(seconds)) / each_s if each_s else 0.0
    except LookupError:
        return 0.0


def plain(series: Mapping[str, Mapping[Any, Sequence[Any]]]) -> Metrics:
    """Return Serve's series as tuples, by the replicas' names."""
    return {
        name: {
            str(replica): [(each.timestamp, each.value) for each in values]
            for replica, values in by_replica.items()
        }
        for name, by_replica in series.items()
    }
