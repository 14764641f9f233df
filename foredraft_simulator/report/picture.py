"""An outcome as a picture: load, replicas and latencies over time."""

from __future__ import annotations

from pathlib import Path

from foredraft.errors import ConfigError
from foredraft_simulator.outcome import Outcome

# Columns over which load is summed.
_COLUMNS = 120


def draw(outcome: Outcome, title: str, path: Path) -> None:
    """Write a picture; raise ConfigError where matplotlib is not installed."""
    try:
        from matplotlib import use
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "a picture needs matplotlib: pip install matplotlib", param="plot"
        ) from None
    use("Agg")
    figure = Figure(figsize=(9, 8), layout="constrained")
    load, replicas, first, each = figure.subplots(4, sharex=True)
    end = max(pool.until_s for pool in outcome.pools.values())
    width = max(end / _COLUMNS, 1e-9)
    tokens = [0.0] * _COLUMNS
    for request in outcome.requests:
        if request.first_s is None or request.last_s is None:
            continue
        # Tokens come evenly between the first and the last.
        begin, last = request.first_s / width, max(request.last_s, request.first_s + 1e-9) / width
        for column in range(int(begin), min(int(last), _COLUMNS - 1) + 1):
            share = min(last, column + 1) - max(begin, column)
            tokens[column] += request.tokens * share / (last - begin)
    times = [width * (column + 0.5) for column in range(_COLUMNS)]
    load.plot(times, [count / width for count in tokens], color="tab:blue")
    load.set_ylabel("tokens/s")
    load.set_title(title or "simulation")
    for (name, pool), colour in zip(
        outcome.pools.items(), ("tab:orange", "tab:green"), strict=True
    ):
        at = [size.time_s for size in pool.sizes] + [end]
        serving = [size.serving for size in pool.sizes] + [pool.sizes[-1].serving]
        paid = [size.paid for size in pool.sizes] + [pool.sizes[-1].paid]
        replicas.step(at, serving, where="post", color=colour, label=f"{name}s that serve")
        replicas.step(
            at, paid, where="post", color=colour, linestyle=":", label=f"{name}s paid for"
        )
    replicas.set_ylabel("replicas")
    replicas.set_ylim(bottom=0)
    replicas.legend(fontsize="small", ncols=2)
    for axis, name, values in (
        (first, "TTFT, ms", [(r.arrived_s, r.ttft_s) for r in outcome.requests]),
        (each, "TPOT, ms", [(r.arrived_s, r.tpot_s) for r in outcome.requests]),
    ):
        points = [(at, 1e3 * value) for at, value in values if value is not None]
        axis.scatter([at for at, _ in points], [value for _, value in points], s=4, alpha=0.6)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
    each.set_xlabel("time, s")
    figure.savefig(path, dpi=110)
