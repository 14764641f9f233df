"""A trace from its file."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median

from foredraft.errors import ConfigError
from foredraft_simulator.traces.arrival import Arrival, Trace, from_start
from foredraft_simulator.traces.formats import records
from foredraft_simulator.traces.lines import MAX_REQUESTS, MAX_SPAN_S, lines_of


def read_trace(path: Path, limit: int = MAX_REQUESTS, seed: int = 0) -> Trace:
    """Return a file's first requests, at most `limit`, without those that failed.

    The format is known by the first line. Where stamps are in coarse steps, the requests of one
    stamp are spread over its step at random, by the seed: else a trace would have bursts that were
    none. Raise ConfigError, with line and field, where the file is of no format or has a fault.
    """
    lines = lines_of(path)
    first = next(lines, None)
    if first is None:
        raise ConfigError(f"{path}: empty", param="trace")
    form, read = records(first, lines)
    found: list[Arrival] = []
    failed = 0
    for line, arrival in read:
        if not arrival.prompt_tokens or not arrival.output_tokens:
            failed += 1
            continue
        if found and abs(arrival.time_s - found[0].time_s) > MAX_SPAN_S:
            raise line.fault(form.fields[0], "more than a year from the first request's")
        found.append(arrival)
        if len(found) == limit:
            break
    if not found:
        raise ConfigError(f"{path}: has no request that did not fail", param="trace")
    arrivals = from_start(found)
    if form.coarse:
        arrivals = spread(arrivals, random.Random(seed))
    return Trace(arrivals, f"{path.name} ({form.name})", failed)


def spread(arrivals: Sequence[Arrival], rng: random.Random) -> tuple[Arrival, ...]:
    """Return requests of one stamp at random times within its step, the first one at the stamp.

    A step ends at the next stamp, and is no longer than the median one: what is longer is a pause.
    """
    groups = [(time, list(group)) for time, group in groupby(arrivals, lambda each: each.time_s)]
    stamps = [time for time, _ in groups]
    gaps = [after - before for before, after in pairwise(stamps)]
    step = median(gaps) if gaps else 0.0
    found: list[Arrival] = []
    for (time, group), until in zip(groups, [*stamps[1:], math.inf], strict=True):
        end = min(time + step, until)
        later = sorted(rng.uniform(time, end) for _ in group[1:])
        found += (each._replace(time_s=at) for each, at in zip(group, (time, *later), strict=True))
    return tuple(found)
