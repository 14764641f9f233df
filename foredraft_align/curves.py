"""A training's curves as a picture: loss, first slots that are right, tokens per round."""

from __future__ import annotations

from pathlib import Path

from foredraft_align.progress import read_log

_SMOOTH = 0.95


def draw_curves(log: Path, out: Path) -> bool:
    """Draw a log to a PNG file; return False where matplotlib or a log is missing."""
    steps = read_log(log)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not steps:
        return False
    figure = Figure(figsize=(10, 3), layout="constrained")
    loss, first, mat = figure.subplots(1, 3)
    at = [each.step for each in steps]
    loss.plot(at, smoothed([each.loss for each in steps]))
    first.plot(at, smoothed([each.first for each in steps]))
    held_out = [(each.step, each.held_out) for each in steps if each.held_out is not None]
    mat.plot([step for step, _ in held_out], [value for _, value in held_out], marker=".")
    titles = ("loss (nats)", "first slot right", "held-out accepted tokens per round")
    for axes, title in zip((loss, first, mat), titles, strict=True):
        axes.set_title(title)
        axes.set_xlabel("step")
    figure.savefig(out, dpi=100)
    return True


def smoothed(values: list[float]) -> list[float]:
    """Return exponential means, the first of them the first value itself."""
    found: list[float] = []
    mean = values[0]
    for value in values:
        mean = _SMOOTH * mean + (1 - _SMOOTH) * value
        found.append(mean)
    return found
