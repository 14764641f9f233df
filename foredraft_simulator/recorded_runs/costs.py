"""What a recorded cluster's passes and messages take, as a scenario has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from foredraft.errors import ConfigError
from foredraft_simulator.acceptance.config import RecordedConfig
from foredraft_simulator.recorded_runs.records import RecordedRound, RecordedRun
from foredraft_simulator.scenario.passes import CurveConfig
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.services.link import LinkConfig
from foredraft_simulator.traces.arrival import Arrival

# Prompts are read in passes of about so many rows.
_PREFILL_ROWS = 64


class RecordedCosts(NamedTuple):
    """A verifier's and a drafter's passes, and a message's delay in seconds."""

    verifier: CurveConfig
    drafter: CurveConfig
    message_s: float


def costs_of(run: RecordedRun) -> RecordedCosts:
    """Return the costs; raise ConfigError where no session was ever alone at its verifier.

    A pass's time by its rows is the median over rounds of a session alone, whose rows they are; a
    request's first round gives what reading its prompt takes.
    """
    alone: list[RecordedRound] = []
    read_s: list[float] = []
    for request in run.requests:
        first, *others = request.rounds
        if first.sessions <= 1:
            read_s.append(first.verifier_s / request.prompt_tokens)
        alone += [each for each in others if each.sessions <= 1]
    if not alone or not read_s:
        raise ConfigError(
            "the recorded run has no session that was alone at its verifier: costs need one, made "
            "with --clients 1",
            param="run",
        )
    by_rows: dict[int, list[float]] = defaultdict(list)
    for each in alone:
        # A plain round has a pass for each of its tokens.
        passes = 1 if each.offered else each.tokens
        by_rows[1 + each.bought].append(each.verifier_s / passes)
    by_rows[max(_PREFILL_ROWS, max(by_rows) + 1)].append(_PREFILL_ROWS * median(read_s))
    drafter_s = [each.drafter_s for each in alone if each.source == "drafter"]
    away = [each.verify_s - each.verifier_queue_s - each.verifier_s for each in alone]
    return RecordedCosts(
        rising({rows: median(times) for rows, times in by_rows.items()}),
        CurveConfig(rows=(1,), seconds=(max(1e-6, median(drafter_s) if drafter_s else 1e-6),)),
        max(0.0, median(away) / 2),
    )


def rising(seconds: Mapping[int, float]) -> CurveConfig:
    """Return a curve that does not fall: noise only ever adds to a measurement."""
    rows = sorted(seconds)
    least = [min(seconds[each] for each in rows[at:]) for at in range(len(rows))]
    return CurveConfig(rows=tuple(rows), seconds=tuple(max(1e-6, each) for each in least))


def played(scenario: Scenario, path: RecordedConfig, costs: RecordedCosts) -> Scenario:
    """Return a scenario with a recorded run's acceptance and costs."""
    link = LinkConfig(delay_ms=1e3 * costs.message_s)
    drafter = scenario.drafter.model_copy(update={"curve": costs.drafter, "link": link})
    verifier = scenario.verifier.model_copy(update={"curve": costs.verifier, "link": link})
    return scenario.model_copy(
        update={"acceptance": path, "drafter": drafter, "verifier": verifier}
    )


def arrivals_of(run: RecordedRun) -> Sequence[Arrival]:
    """Return the recorded requests as a trace's."""
    found: Iterable[Arrival] = (
        Arrival(each.arrived_s, each.prompt_tokens, each.output_tokens) for each in run.requests
    )
    return sorted(found)
