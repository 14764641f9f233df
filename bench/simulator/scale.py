"""Scale-out pictures: `python -m bench.simulator.scale NAME`, one sweep and one picture each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from foredraft.strict import parse
from foredraft_simulator.outcome import Outcome, percentile
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.traces.shapes import ShapeConfig, shaped


class Point(NamedTuple):
    """One simulation of a sweep: a value on the axis, on a curve; times in ms."""

    curve: str
    at: float
    tokens_per_s: float
    per_replica: float
    ttft_p99: float
    tpot_mean: float
    tpot_p99: float
    cost_per_1000: float
    events: int
    cpu_s: float


class Sweep(StrEnum):
    """What is varied."""

    REPLICAS = "replicas"
    RATIO = "ratio"
    LINK = "link"
    LOAD = "load"
    ACCEPTANCE = "acceptance"


_RATES = [0.8, 0.78, 0.76, 0.74]
_LED = {"adl": {"name": "goodput"}, "verifier_led_rounds": 16}


def scenario(verifiers: int = 1, drafters: int = 1, **changes: Any) -> Scenario:
    """Return H100s with so many replicas; one ingress for every 16 verifiers."""
    values: dict[str, Any] = {
        "orchestrator": _LED,
        "ingress": {"replicas": max(1, verifiers // 16)},
        "acceptance": {"rates": _RATES, "request_spread": 0.6},
        "drafter": {"replicas": drafters},
        "verifier": {"replicas": verifiers},
    }
    for name, part in changes.items():
        old = values.get(name)
        values[name] = {**old, **part} if isinstance(old, dict) else part
    return parse(Scenario, values)


def at_once(count: int, tokens: int, over_s: float = 0.1) -> list[Arrival]:
    """Return requests that come evenly over some seconds."""
    return [Arrival(over_s * number / count, 128, tokens) for number in range(count)]


def one_by_one(count: int, tokens: int) -> list[Arrival]:
    """Return requests each of which has ended before the next one comes."""
    return [Arrival(2.0 * number, 128, tokens) for number in range(count)]


def point(curve: str, at: float, config: Scenario, arrivals: Sequence[Arrival]) -> Point:
    """Return a simulation's point."""
    began = time.process_time()
    outcome: Outcome = simulate(config, arrivals, 1)
    cpu_s = time.process_time() - began
    tpots = [1e3 * each for each in outcome.tpots_s]
    found = Point(
        curve,
        at,
        outcome.throughput,
        outcome.throughput / config.verifier.replicas,
        1e3 * percentile(outcome.ttfts_s, 99),
        sum(tpots) / len(tpots),
        percentile(tpots, 99),
        1000 * outcome.cost / outcome.tokens,
        outcome.events,
        cpu_s,
    )
    typer.echo(str(found))
    return found


def replicas() -> list[Point]:
    """Four sessions for each verifier, a drafter for every four; plain and drafted."""
    return [
        point(
            "drafted" if drafted else "plain",
            count,
            scenario(count, max(1, count // 4), speculate=drafted),
            at_once(4 * count, 32),
        )
        for drafted in (False, True)
        for count in (1, 4, 16, 64, 256, 1024, 8192)
    ]


def ratio() -> list[Point]:
    """Drafters for 8 verifiers: few sessions at each, and many."""
    return [
        point(
            f"{sessions} sessions a verifier",
            drafters / 8,
            scenario(8, drafters, speculate=drafters > 0),
            at_once(8 * sessions, 32),
        )
        for sessions in (4, 16)
        for drafters in (0, 1, 2, 4, 8)
    ]


def link() -> list[Point]:
    """Delay to a drafter, with and without drafts ahead of the verdict."""
    return [
        point(
            f"drafted {name}",
            delay_ms,
            scenario(
                drafter={"link": {"delay_ms": delay_ms}},
                orchestrator={**_LED, "run_ahead_min_hit_rate": least},
            ),
            one_by_one(12, 192),
        )
        for name, least in (("ahead", 0.15), ("in time", 1.0))
        for delay_ms in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    ]


def load() -> list[Point]:
    """Requests per second at one verifier and one drafter, in four shapes."""
    found = []
    # Peaks by which every shape's mean is the same; between them a quarter of it.
    for shape, peak in (("steady", 1.0), ("ramp", 1.75), ("burst", 3.25), ("day", 1.75)):
        for rate in (2.0, 8.0, 32.0, 96.0):
            least = rate if shape == "steady" else rate / 4
            config = ShapeConfig.model_validate(
                {
                    "shape": shape,
                    "rate": least,
                    "peak": peak * rate,
                    "duration_s": 4,
                    "period_s": 2,
                    "burst_s": 0.5,
                    "prompt_tokens": 256,
                    "output_tokens": 32,
                }
            )
            found.append(point(shape, rate, scenario(), shaped(config, 1).arrivals))
    return found


def acceptance() -> list[Point]:
    """Acceptance of each token, at few and at many sessions of one verifier."""
    return [
        point(
            "one session" if sessions == 1 else f"{sessions} sessions",
            rate,
            scenario(acceptance={"rates": [rate]}),
            one_by_one(8, 48) if sessions == 1 else at_once(sessions, 48),
        )
        for sessions in (1, 8, 64)
        for rate in (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
    ]


_SWEEPS: dict[Sweep, tuple[Callable[[], list[Point]], str, bool, tuple[str, str]]] = {
    Sweep.REPLICAS: (replicas, "verifiers", True, ("tokens_per_s", "tpot_p99")),
    Sweep.RATIO: (ratio, "drafters per verifier", False, ("tokens_per_s", "cost_per_1000")),
    Sweep.LINK: (
        link,
        "delay of each message to or from the drafter, ms",
        True,
        ("tpot_mean", "tpot_p99"),
    ),
    Sweep.LOAD: (load, "mean requests/s", True, ("ttft_p99", "tpot_mean")),
    Sweep.ACCEPTANCE: (acceptance, "acceptance of each token", False, ("tpot_mean", "tpot_p99")),
}
_NAMES = {
    "tokens_per_s": "tokens/s",
    "per_replica": "tokens/s of a verifier",
    "ttft_p99": "p99 TTFT, ms",
    "tpot_mean": "mean TPOT, ms",
    "tpot_p99": "p99 TPOT, ms",
    "cost_per_1000": "cost of 1,000 tokens, verifier seconds",
}


def draw(sweep: Sweep, points: Sequence[Point], path: Path) -> None:
    """Write a sweep's picture: two figures over what is varied."""
    from matplotlib.figure import Figure

    _, label, logarithmic, shown = _SWEEPS[sweep]
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, name in zip(figure.subplots(1, 2), shown, strict=True):
        for curve in dict.fromkeys(each.curve for each in points):
            there = [each for each in points if each.curve == curve]
            axis.plot(
                [each.at for each in there],
                [getattr(each, name) for each in there],
                marker="o",
                label=curve,
            )
        axis.set_xlabel(label)
        axis.set_ylabel(_NAMES[name])
        if logarithmic:
            axis.set_xscale("log")
        if name == "tokens_per_s" and logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def main(
    sweep: Sweep,
    folder: Annotated[Path, typer.Option(help="Where figures and picture go.")] = Path(
        "bench/results/simulator"
    ),
) -> None:
    """Simulate one sweep; write its points as JSON, and its picture."""
    folder.mkdir(parents=True, exist_ok=True)
    points = _SWEEPS[sweep][0]()
    rows = [each._asdict() for each in points]
    (folder / f"{sweep}.json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(sweep, points, folder / f"{sweep}.png")
    events, cpu_s = sum(each.events for each in points), sum(each.cpu_s for each in points)
    typer.echo(f"{events} events in {cpu_s:.0f} s of one core: {events / cpu_s:.0f} a second")


if __name__ == "__main__":
    typer.run(main)
