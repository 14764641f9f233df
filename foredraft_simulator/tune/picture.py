"""The picture of a comparison: load and replicas over time, cost against latency. Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from foredraft_simulator.traces.arrival import Trace
from foredraft_simulator.tune.figures import Figures, Limits
from foredraft_simulator.tune.run import Tuned

_COLOURS = {"static": "#bbbbbb", "utilisation": "#ee6677", "goodput": "#4477aa"}
_BINS = 60


def draw(path: Path, trace: Trace, found: Sequence[Tuned], limits: Limits) -> None:
    """Draw what each policy did over the trace, and what all its trials cost."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=(3, 2))
    load = figure.add_subplot(grid[0, 0])
    verifiers = figure.add_subplot(grid[1, 0], sharex=load)
    drafters = figure.add_subplot(grid[2, 0], sharex=load)
    _load(load, trace)
    for each in found:
        colour = _COLOURS[each.policy]
        _steps(verifiers, each.best.verifiers, each.policy, colour)
        _steps(drafters, each.best.drafters, each.policy, colour)
    verifiers.set_ylabel("verifiers")
    drafters.set_ylabel("drafters")
    drafters.set_xlabel("seconds")
    for axes in (verifiers, drafters):
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _trials(figure.add_subplot(grid[:, 1]), found, limits)
    handles, labels = verifiers.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)


def _load(axes: Any, trace: Trace) -> None:
    width = max(trace.duration_s, 1.0) / _BINS
    edges = [width * nth for nth in range(_BINS + 1)]
    times = [each.time_s for each in trace.arrivals]
    axes.hist(times, bins=edges, weights=[1 / width] * len(times), color="#cccccc")
    axes.set_ylabel("requests/s")
    axes.set_title(trace.source, fontsize=10)


def _steps(axes: Any, points: Sequence[tuple[float, int]], label: str, colour: str) -> None:
    times, sizes = zip(*points, strict=True)
    axes.step(times, sizes, where="post", color=colour, label=label)


def _trials(axes: Any, found: Sequence[Tuned], limits: Limits) -> None:
    for each in found:
        colour = _COLOURS[each.policy]
        ran = [trial.figures for trial in each.trials if not trial.figures.failed]
        costs, shares = [one.cost for one in ran], [_share(one, limits) for one in ran]
        axes.scatter(costs, shares, s=14, color=colour, alpha=0.5)
        best = each.best.figures
        axes.scatter([best.cost], [_share(best, limits)], s=90, color=colour, edgecolor="black")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.set_xlabel("cost, hours of a verifier")
    axes.set_ylabel(f"latency at p{limits.percentile:g}, as a share of its limit")
    axes.set_title("every trial; large: the chosen one", fontsize=10)


def _share(figures: Figures, limits: Limits) -> float:
    return max(figures.ttft_s / limits.ttft_s, figures.tpot_s / limits.tpot_s)
