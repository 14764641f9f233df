"""Plots as PNG files. The only module that needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# As many as the longest row of ways has.
_COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222"),
    *("#ee8866", "#44bb99", "#994f00", "#9988dd"),
)
_DPI = 110


def bars(
    path: Path, series: Mapping[str, Sequence[float]], groups: Sequence[str], label: str
) -> None:
    """Draw one group of bars for each name of groups; the line at 1 is plain decoding."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots()
    width = 0.85 / len(series)
    for index, (name, heights) in enumerate(series.items()):
        places = [group - 0.425 + (index + 0.5) * width for group in range(len(groups))]
        axes.bar(places, heights, width, label=name, color=_colour(index))
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    _save(figure, path)


def stacked(path: Path, parts: Mapping[str, Sequence[float]], names: Sequence[str]) -> None:
    """Draw one horizontal bar for each name, made of parts in milliseconds a round."""
    figure = Figure(figsize=(9, 1.6 + 0.45 * len(names)), layout="constrained")
    axes = figure.subplots()
    start = [0.0] * len(names)
    for index, (part, lengths) in enumerate(parts.items()):
        axes.barh(range(len(names)), lengths, left=start, label=part, color=_colour(index))
        start = [a + b for a, b in zip(start, lengths, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("compute per round, ms")
    figure.legend(loc="outside lower center", ncols=len(parts), fontsize=8, frameon=False)
    _save(figure, path)


class Sweep:
    """One knob: its name, its settings, and MAT and speedup at each."""

    def __init__(
        self, knob: str, settings: Sequence[str], mats: Sequence[float], speedups: Sequence[float]
    ) -> None:
        self.knob, self.settings = knob, settings
        self.mats, self.speedups = mats, speedups

    def draw(self, axes: Axes) -> None:
        """Draw both over the settings, evenly spaced, on an axis each."""
        places = range(len(self.settings))
        other = axes.twinx()
        axes.plot(places, self.mats, "o-", color=_COLOURS[0])
        other.plot(places, self.speedups, "s--", color=_COLOURS[1])
        axes.set_xticks(places, self.settings)
        axes.set_xlabel(self.knob)
        axes.set_ylabel("MAT", color=_COLOURS[0])
        other.set_ylabel("speedup", color=_COLOURS[1])
        # From 0, so that noise does not look like a trend.
        axes.set_ylim(0, 1.15 * max(*self.mats, 0.1))
        other.set_ylim(0, 1.15 * max(*self.speedups, 1.0))


def sweeps(path: Path, panels: Sequence[Sweep]) -> None:
    """Draw one panel for each knob, two in a row."""
    rows = -(-len(panels) // 2)
    columns = min(2, len(panels))
    figure = Figure(figsize=(5.2 * columns, 3.4 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, axes in zip(panels, places, strict=False):
        panel.draw(axes)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    _save(figure, path)


def lines(
    path: Path,
    series: Mapping[str, Mapping[int, float | None]],
    labels: tuple[str, str],
    log: bool = False,
) -> None:
    """Draw each series over its keys; labels are the axes'. Missing values are left out."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    for index, (name, points) in enumerate(series.items()):
        known = {x: y for x, y in points.items() if y is not None}
        axes.plot(list(known), list(known.values()), "o-", label=name, color=_colour(index))
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    known_x = {x for points in series.values() for x, y in points.items() if y is not None}
    axes.set_xticks(sorted(known_x))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    _save(figure, path)


def scatter(
    path: Path,
    points: Mapping[str, Sequence[tuple[float, float]]],
    curves: Mapping[str, Callable[[float], float]],
    labels: tuple[str, str],
) -> None:
    """Draw points and, over them, curves on 0..1; labels are the axes'."""
    figure = Figure(figsize=(7, 5.4), layout="constrained")
    axes = figure.subplots()
    for index, (name, found) in enumerate(points.items()):
        xs, ys = [x for x, _ in found], [y for _, y in found]
        axes.scatter(xs, ys, s=7, alpha=0.45, linewidths=0, label=name, color=_colour(index))
    grid = [i / 100 for i in range(101)]
    for (name, curve), style in zip(curves.items(), ("--", "-", ":"), strict=False):
        axes.plot(grid, [curve(x) for x in grid], style, label=name, color="black", linewidth=1.2)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    _save(figure, path)


def grids(
    path: Path,
    panels: Mapping[str, Sequence[Sequence[float]]],
    rows: tuple[str, Sequence[int]],
    columns: tuple[str, Sequence[int]],
) -> None:
    """Draw one table of coloured cells for each panel; rows and columns are (name, settings)."""
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    for axes, (title, cells) in zip(
        figure.subplots(1, len(panels), squeeze=False).ravel(), panels.items(), strict=True
    ):
        image = axes.imshow(cells, cmap="viridis", aspect="auto")
        middle = (min(map(min, cells)) + max(map(max, cells))) / 2
        for y, line in enumerate(cells):
            for x, value in enumerate(line):
                ink = "white" if value < middle else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=ink)
        axes.set_xticks(range(len(columns[1])), [str(each) for each in columns[1]])
        axes.set_yticks(range(len(rows[1])), [str(each) for each in rows[1]])
        axes.set_xlabel(columns[0])
        axes.set_ylabel(rows[0])
        axes.set_title(title, fontsize=10)
        figure.colorbar(image, ax=axes)
    _save(figure, path)


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # No creation date or version: the same figures give the same file.
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
