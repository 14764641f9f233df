"""What a recorded cluster's passes and messages take, as a scenario has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from foredraft.errors import ConfigError
from foredraft_simulator.acceptance.config import RecordedConfig
from foredraft_simulator.recorded_runs.records import RecordedRound, RecordedRun
from foredraft_simulator.scenario.passes import CurveConfig
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.services.link import LinkConfig
from foredraft_simulator.traces.arrival import Arrival


class RecordedCosts(NamedTuple):
    """A verifier's and a drafter's passes; a message's delay, and what handling it takes at the
    ingress, in seconds.
    """

    verifier: CurveConfig
    drafter: CurveConfig
    message_s: float
    handling_s: float


def costs_of(run: RecordedRun) -> RecordedCosts:
    """Return the costs; raise ConfigError where no session was ever alone at its verifier.

    A pass's time by its rows is the mean over rounds of a session alone, whose rows they are; a
    request's first round reads its prompt: that is one more point, of the mean length. What is
    between two rounds is the handling of two messages, the draft and the verdict.
    """
    alone: list[RecordedRound] = []
    prompts: list[tuple[int, float]] = []
    between: list[float] = []
    for request in run.requests:
        first, *others = request.rounds
        ends = [each.began_s + each.draft_wait_s + each.verify_s for each in request.rounds]
        between += [max(0.0, b.began_s - a) for a, b in zip(ends, others, strict=False)]
        if first.sessions <= 1:
            prompts.append((request.prompt_tokens, first.verifier_s))
        alone += [each for each in others if each.sessions <= 1]
    if not alone or not prompts:
        raise ConfigError(
            "the recorded run has no session that was alone at its verifier: costs need one, made "
            "with --clients 1",
            param="run",
        )
    by_rows: dict[float, list[float]] = defaultdict(list)
    for each in alone:
        # A plain round has a pass for each of its tokens.
        passes = 1 if each.offered else each.tokens
        by_rows[1 + each.bought].append(each.verifier_s / passes)
    length, read_s = (fmean(each) for each in zip(*prompts, strict=True))
    # Beyond the drafts' rows also where prompts are shorter.
    most = max(length, max(by_rows) + 1)
    by_rows[most].append(read_s * most / length)
    drafter_s = [each.drafter_s for each in alone if each.source == "drafter"]
    away = [each.verify_s - each.verifier_queue_s - each.verifier_s for each in alone]
    return RecordedCosts(
        rising(by_rows),
        CurveConfig(rows=(1,), seconds=(max(1e-6, fmean(drafter_s) if drafter_s else 1e-6),)),
        max(0.0, fmean(away) / 2),
        fmean(between) / 2 if between else 0.0,
    )


def rising(times: Mapping[float, Sequence[float]]) -> CurveConfig:
    """Return the curve through mean times by rows that does not fall, and is nearest to them.

    Neighbours that would fall share their mean (isotonic regression, pool adjacent violators).
    """
    pools: list[tuple[float, int, list[float]]] = []
    for rows in sorted(times):
        total, count, there = sum(times[rows]), len(times[rows]), [rows]
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            more, others, before = pools.pop()
            total, count, there = total + more, count + others, before + there
        pools.append((total, count, there))
    seconds = [(rows, total / count) for total, count, there in pools for rows in there]
    return CurveConfig(
        rows=tuple(rows for rows, _ in seconds),
        seconds=tuple(max(1e-6, each) for _, each in seconds),
    )


def played(scenario: Scenario, path: RecordedConfig, costs: RecordedCosts) -> Scenario:
    """Return a scenario with a recorded run's acceptance and costs."""
    link = LinkConfig(delay_ms=1e3 * costs.message_s)
    drafter = scenario.drafter.model_copy(update={"curve": costs.drafter, "link": link})
    verifier = scenario.verifier.model_copy(update={"curve": costs.verifier, "link": link})
    ingress = scenario.ingress.model_copy(update={"message_s": costs.handling_s})
    changed = {"acceptance": path, "drafter": drafter, "verifier": verifier, "ingress": ingress}
    return scenario.model_copy(update=changed)


def arrivals_of(run: RecordedRun) -> Sequence[Arrival]:
    """Return the recorded requests as a trace's."""
    found: Iterable[Arrival] = (
        Arrival(each.arrived_s, each.prompt_tokens, each.output_tokens) for each in run.requests
    )
    return sorted(found)
