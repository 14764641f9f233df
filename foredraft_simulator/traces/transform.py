"""Traces made faster, denser, or short enough for a model's context."""

from __future__ import annotations

import math
import random

from foredraft_simulator.traces.arrival import Arrival, Trace, from_start


def time_scaled(trace: Trace, factor: float) -> Trace:
    """Return the trace at times that are multiplied: 0.5 is twice as fast."""
    arrivals = (each._replace(time_s=factor * each.time_s) for each in trace.arrivals)
    return trace._replace(arrivals=tuple(arrivals))


def rate_scaled(trace: Trace, factor: float, seed: int = 0) -> Trace:
    """Return the trace with each request `factor` times on average, over the same time.

    A copy comes between its original and the next one's time, so that the load's shape stays.
    """
    rng = random.Random(seed)
    arrivals = trace.arrivals
    found: list[Arrival] = []
    for at, each in enumerate(arrivals):
        whole = math.floor(factor)
        count = whole + (rng.random() < factor - whole)
        until = arrivals[min(at + 1, len(arrivals) - 1)].time_s
        # The first is the original, unless there are fewer requests than before.
        times = [each.time_s, *(rng.uniform(each.time_s, until) for _ in range(count - 1))]
        found += (each._replace(time_s=time) for time in times[:count])
    return trace._replace(arrivals=from_start(found) if found else ())


def clipped(trace: Trace, context: int) -> Trace:
    """Return the trace with prompt and output together of at most `context` tokens, at least 2.

    The prompt is shortened, and only where it would have no token left, the output.
    """
    found = []
    for each in trace.arrivals:
        output = min(each.output_tokens, context - 1)
        prompt = min(each.prompt_tokens, context - output)
        found.append(each._replace(prompt_tokens=prompt, output_tokens=output))
    return trace._replace(arrivals=tuple(found))


def first(trace: Trace, count: int) -> Trace:
    """Return the trace's first requests."""
    return trace._replace(arrivals=trace.arrivals[:count])
