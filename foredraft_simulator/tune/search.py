"""The cheapest parameters that keep the limits, by Optuna's tree-structured Parzen estimator.

A run takes seconds, some parameters are whole numbers, and neither cost nor latency has a gradient:
of the maintained optimisers, TPE finds good points of such a function in some dozens of runs
(Bergstra et al., NeurIPS 2011), and the same seed asks for the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from foredraft.errors import ConfigError
from foredraft_simulator.tune.figures import Figures, Limits
from foredraft_simulator.tune.space import Parameter, Values

try:
    import optuna
except ModuleNotFoundError:
    raise ConfigError(
        "tuning needs Optuna: pip install 'foredraft[tune]' (in a checkout: make install)"
    ) from None


class Trial(NamedTuple):
    """Values that were tried, and what came of them."""

    values: Values
    figures: Figures


# Several at once: they may run side by side.
Evaluate = Callable[[Sequence[Values]], Sequence[Figures]]


def search(
    parameters: Sequence[Parameter],
    starts: Sequence[Values],
    limits: Limits,
    evaluate: Evaluate,
    trials: int,
    seed: int,
    at_once: int = 1,
) -> tuple[Trial, ...]:
    """Return all trials, the best first: what keeps the limits by its cost, then what does not.

    The first trials are `starts`; the same values are evaluated once.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    for start in starts:
        study.enqueue_trial(dict(start))
    seen: dict[tuple[float, ...], Trial] = {}
    for done in range(0, trials, at_once):
        asked = [study.ask() for _ in range(min(at_once, trials - done))]
        values = [{each.name: _suggested(trial, each) for each in parameters} for trial in asked]
        fresh = {key: one for one in values if (key := tuple(one.values())) not in seen}
        found = evaluate(list(fresh.values()))
        for key, figures in zip(fresh, found, strict=True):
            seen[key] = Trial(fresh[key], figures)
        for trial, one in zip(asked, values, strict=True):
            study.tell(trial, rank(seen[tuple(one.values())].figures, limits))
    return ordered(seen.values(), limits)


def cheapest_first(
    values: Sequence[Values], limits: Limits, evaluate: Evaluate, trials: int, at_once: int = 1
) -> tuple[Trial, ...]:
    """Return trials of values, given in the order of their cost, up to the first that keeps limits.

    The best one is first, as in `search`.
    """
    found: list[Trial] = []
    for done in range(0, min(trials, len(values)), at_once):
        some = values[done : min(done + at_once, trials)]
        found += map(Trial, some, evaluate(some))
        if any(each.figures.excess(limits) == 0 for each in found):
            break
    return ordered(found, limits)


def ordered(trials: Iterable[Trial], limits: Limits) -> tuple[Trial, ...]:
    """Return trials, the best first."""
    return tuple(sorted(trials, key=lambda each: rank(each.figures, limits)))


def rank(figures: Figures, limits: Limits) -> float:
    """Return a number that is less the better: below 1 by cost, above by the limits' excess."""
    excess = figures.excess(limits)
    if excess:
        return min(1 + excess, 1e6)
    return figures.cost / (1 + figures.cost)


def _suggested(trial: optuna.Trial, parameter: Parameter) -> float:
    name, _, low, high, log, whole = parameter
    if whole:
        return trial.suggest_int(name, int(low), int(high))
    # As it is written to a file: three digits are more than a policy can tell apart.
    return float(f"{trial.suggest_float(name, low, high, log=log):.3g}")
