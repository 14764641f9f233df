"""The picture of a load sweep. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from bench.load.points import Point

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377")


def draw(path: Path, points: Sequence[Point]) -> None:
    """Draw Foredraft against plain decoding over the sessions, a line a pair and temperature."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    lines = dict.fromkeys((p.pair, p.temperature) for p in points)
    for (pair, temperature), colour in zip(lines, _COLOURS, strict=False):
        of_line = [p for p in points if (p.pair, p.temperature) == (pair, temperature)]
        sessions, ratios = [p.sessions for p in of_line], [p.ratio for p in of_line]
        below = [p.ratio - p.low for p in of_line]
        above = [p.high - p.ratio for p in of_line]
        label = f"{pair}, temperature {temperature:g}"
        axes.errorbar(
            sessions, ratios, (below, above), label=label, color=colour, marker="o", capsize=3
        )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({p.sessions for p in points}))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sessions at once")
    axes.set_ylabel("tokens/s against plain decoding")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
