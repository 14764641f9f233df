"""The simulator against real runs on this machine: `python -m bench.simulator.validate`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import typer

from bench.paced.run import cpu_times
from bench.simulator.cases import CALIBRATION, CASES, Case
from bench.simulator.real import RealRun, run_real
from foredraft_simulator.outcome import Outcome, RequestOutcome, percentile
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.simulate import simulate


class Figures(NamedTuple):
    """A case's runs together: tokens per second, times in milliseconds, failed requests."""

    throughput: float
    ttft_ms: float
    ttft_p99_ms: float
    tpot_ms: float
    tpot_p99_ms: float
    errors: int


class Machine(NamedTuple):
    """What this machine adds: to a message, to a pass, and to that for each session in it.

    Each service handles one message after the other, handling_ms each.
    """

    message_ms: float
    pass_ms: float
    session_ms: float
    handling_ms: float = 0.0


def figures(requests: Sequence[RequestOutcome], seconds: float) -> Figures:
    """Return the figures of runs that took so many seconds in all."""
    ttfts = [1e3 * each.ttft_s for each in requests if each.ttft_s is not None]
    tpots = [1e3 * each.tpot_s for each in requests if each.tpot_s is not None]
    return Figures(
        sum(each.tokens for each in requests) / seconds,
        mean(ttfts),
        percentile(ttfts, 99),
        mean(tpots),
        percentile(tpots, 99),
        sum(bool(each.error) for each in requests),
    )


def on(machine: Machine, scenario: Scenario) -> Scenario:
    """Return a scenario with what a machine adds."""
    message_s = machine.handling_ms / 1e3
    parts = {"ingress": scenario.ingress.model_copy(update={"message_s": message_s})}
    for name, each_ms in (("drafter", 0.0), ("verifier", machine.session_ms)):
        pool = getattr(scenario, name)
        link = pool.link.model_copy(update={"delay_ms": pool.link.delay_ms + machine.message_ms})
        parts[name] = pool.model_copy(
            update={
                "link": link,
                "host_s": machine.pass_ms / 1e3,
                "host_session_s": each_ms / 1e3,
                "message_s": message_s,
            }
        )
    return scenario.model_copy(update=parts)


def simulated(case: Case, machine: Machine) -> Figures:
    """Return the figures of a case's simulations on a machine."""
    runs = [simulate(on(machine, case.scenario), case.arrivals, seed) for seed in case.seeds]
    return figures(_requests(runs), sum(run.seconds for run in runs))


def real(case: Case) -> Figures:
    """Return the figures of a case's real runs."""
    runs = [asyncio.run(run_real(case.scenario, case.arrivals, seed)) for seed in case.seeds]
    return figures(_requests(runs), sum(run.seconds for run in runs))


def _requests(runs: Sequence[Outcome] | Sequence[RealRun]) -> list[RequestOutcome]:
    return [each for run in runs for each in run.requests]


def calibrated(cases: Sequence[Case], measured: Sequence[Figures]) -> Machine:
    """Return the machine that explains the times per token of the calibrating cases best.

    How long a message is handled is fitted to the last one, the rest to those before it, which
    decode plainly.
    """
    grid = product((0.2, 0.5, 1.0), (0.3, 1.0, 2.0), (0.0, 0.15, 0.3))
    plain = _nearest([Machine(*each) for each in grid], cases[:-1], measured[:-1])
    handling = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
    drafted = [plain._replace(handling_ms=each) for each in handling]
    return _nearest(drafted, cases[-1:], measured[-1:])


def _nearest(
    machines: Sequence[Machine], cases: Sequence[Case], measured: Sequence[Figures]
) -> Machine:
    def error(machine: Machine) -> float:
        return sum(
            abs(math.log(simulated(case, machine).tpot_ms / real.tpot_ms))
            for case, real in zip(cases, measured, strict=True)
        )

    return min(machines, key=error)


def pairs_in_order(real: Sequence[float], model: Sequence[float]) -> tuple[int, int]:
    """Return how many pairs that differ by 3 % or more are in the same order, of how many."""
    pairs = [
        (a, b) for a, b in combinations(range(len(real)), 2) if abs(real[a] / real[b] - 1) >= 0.03
    ]
    same = sum((real[a] < real[b]) == (model[a] < model[b]) for a, b in pairs)
    return same, len(pairs)


def as_markdown(rows: Sequence[tuple[str, Figures, Figures]]) -> str:
    """Return the table: real, simulated, and how far they are apart."""
    head = (
        "| case | tokens/s: real, simulated | error | TTFT, ms | error | p99 | error "
        "| TPOT, ms | error | p99 | error | failed |\n" + "|---" * 12 + "|\n"
    )
    lines = []
    for name, real, model in rows:
        cells = [name]
        for one, other in list(zip(real, model, strict=True))[:-1]:
            cells += [f"{one:.1f}, {other:.1f}", f"{other / one - 1:+.1%}"]
        cells.append(f"{real.errors}, {model.errors}")
        lines.append("| " + " | ".join(cells) + " |\n")
    worst = [max(abs(model[at] / real[at] - 1) for _, real, model in rows) for at in range(5)]
    middle = [mean(abs(model[at] / real[at] - 1) for _, real, model in rows) for at in range(5)]
    names = ("tokens/s", "mean TTFT", "p99 TTFT", "mean TPOT", "p99 TPOT")
    errors = "; ".join(
        f"{name} {a:.1%} on average, {b:.1%} at most"
        for name, a, b in zip(names, middle, worst, strict=True)
    )
    order = [
        pairs_in_order([row[1][at] for row in rows], [row[2][at] for row in rows]) for at in (0, 3)
    ]
    return (
        head
        + "".join(lines)
        + f"\nErrors: {errors}.\nPairs of cases in the same order: {order[0][0]} of {order[0][1]} "
        f"by tokens/s, {order[1][0]} of {order[1][1]} by mean TPOT.\n"
    )


def main(
    folder: Annotated[Path, typer.Option(help="Where the figures go.")] = Path(
        "bench/results/simulator"
    ),
    reuse: Annotated[bool, typer.Option(help="Take the real figures that are there.")] = False,
    again: Annotated[
        list[str] | None, typer.Option(help="A case that is run all the same; repeatable.")
    ] = None,
) -> None:
    """Run every case for real and simulated; write validation.json and validation.md."""
    unknown = set(again or ()) - {case.name for case in CASES}
    if unknown:
        raise typer.BadParameter(f"no case is named {', '.join(sorted(unknown))}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "validation.json"
    known: dict[str, Any] = json.loads(path.read_text()) if reuse else {}
    measured = []
    busy, began, own = cpu_times()[0], time.perf_counter(), time.process_time()
    for case in CASES:
        if case.name in known and case.name not in (again or ()):
            measured.append(Figures(*known[case.name]["real"]))
            continue
        measured.append(real(case))
        typer.echo(f"{case.name}: {measured[-1]}")
    if not reuse or again:
        others_s = (cpu_times()[0] - busy) / os.sysconf("SC_CLK_TCK") - time.process_time() + own
        typer.echo(
            f"other processes kept {others_s / (time.perf_counter() - began):.2f} cores of "
            f"{os.cpu_count()} busy meanwhile"
        )
    machine = calibrated(CALIBRATION, measured[: len(CALIBRATION)])
    model = [simulated(case, machine) for case in CASES]
    rows = [(case.name, a, b) for case, a, b in zip(CASES, measured, model, strict=True)]
    path.write_text(
        json.dumps({name: {"real": a, "simulated": b} for name, a, b in rows}, indent=1)
    )
    table = as_markdown(rows) + (
        f"\nThis machine adds {machine.message_ms} ms to a message, {machine.pass_ms} ms to a pass "
        f"and {machine.session_ms} ms for each session in it, and each service handles one message "
        f"after the other, {machine.handling_ms} ms each: fitted to the first {len(CALIBRATION)} "
        "cases.\n"
    )
    (folder / "validation.md").write_text(table)
    typer.echo(table)


if __name__ == "__main__":
    typer.run(main)
