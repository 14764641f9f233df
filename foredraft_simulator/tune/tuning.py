"""Each policy with its cheapest parameters, and what it does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deployments.autoscaling.config import ScalingConfig
from foredraft.errors import ConfigError
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.tune.figures import Figures, Limits
from foredraft_simulator.tune.run import Run, Tuned
from foredraft_simulator.tune.search import Trial, cheapest_first, ordered, search
from foredraft_simulator.tune.space import (
    Parameter,
    PolicyName,
    Setting,
    Values,
    default,
    space,
    with_values,
)

# What has a policy start replicas, the less of them the higher it is.
_ASKS_FOR_MORE = frozenset({"busy", "kv", "waiting", "drafter_busy", "token_s"})

Runs = Callable[[Sequence[Setting]], Sequence[Run]]


def base_setting(scenario: Scenario) -> Setting:
    """Return what a scenario sets; the price of a drafter is that of its pools.

    Raise ConfigError where its pools are not scaled.
    """
    drafters, verifiers = scenario.drafter.autoscaling, scenario.verifier.autoscaling
    if drafters is None or verifiers is None or scenario.scaling is None:
        raise ConfigError(
            "scaling, drafter.autoscaling and verifier.autoscaling are missing: there is nothing "
            "to tune in a scenario whose pools do not change",
            param="scaling",
        )
    price = scenario.drafter.price / scenario.verifier.price
    goodput = scenario.scaling.goodput.model_copy(update={"price": price})
    scaling: ScalingConfig = scenario.scaling.model_copy(update={"goodput": goodput})
    return Setting(scaling=scaling, drafters=drafters, verifiers=verifiers)


class Tuner:
    """Searches one policy after the other; all runs are kept."""

    def __init__(self, base: Setting, limits: Limits, runs: Runs, at_once: int = 1) -> None:
        self._base, self._limits, self._runs, self._at_once = base, limits, runs, at_once
        self._seen: dict[tuple[PolicyName, tuple[float, ...]], Run] = {}

    def tuned(self, policies: Sequence[PolicyName], trials: int, seed: int) -> list[Tuned]:
        """Return what was found for each policy, the best policy first.

        After its own trials each policy also tries what was found for the others, as far as it has
        the same parameters: no policy is better for luck in those.
        """
        found = {policy: self._search(policy, trials, seed) for policy in policies}
        bests = {policy: each[0].values for policy, each in found.items()}
        for policy in policies:
            others = [bests[other] for other in policies if other != policy]
            found[policy] = self._with_others(policy, found[policy], others)
        best = [Tuned(policy, each, self._run(policy, each[0])) for policy, each in found.items()]
        places = ordered([each.trials[0] for each in best], self._limits)
        return sorted(best, key=lambda each: places.index(each.trials[0]))

    def setting(self, tuned: Tuned) -> Setting:
        """Return the best setting of a policy."""
        return with_values(
            self._base, tuned.policy, space(tuned.policy, self._base), tuned.trials[0].values
        )

    def _search(self, policy: PolicyName, trials: int, seed: int) -> tuple[Trial, ...]:
        parameters = space(policy, self._base)
        if policy == "static":
            # What numbers cost is known before they are run.
            return cheapest_first(
                numbers(self._base),
                self._limits,
                lambda values: self._evaluate(policy, parameters, values),
                trials,
                self._at_once,
            )
        starts = list(_starts(policy, parameters, self._base, self._limits))
        return search(
            parameters,
            starts[:trials],
            self._limits,
            lambda values: self._evaluate(policy, parameters, values),
            trials,
            seed,
            self._at_once,
        )

    def _evaluate(
        self, policy: PolicyName, parameters: tuple[Parameter, ...], values: Sequence[Values]
    ) -> list[Figures]:
        settings = [with_values(self._base, policy, parameters, each) for each in values]
        runs = self._runs(settings)
        for one, run in zip(values, runs, strict=True):
            self._seen[policy, tuple(one.values())] = run
        return [run.figures for run in runs]

    def _with_others(
        self, policy: PolicyName, trials: tuple[Trial, ...], others: Sequence[Values]
    ) -> tuple[Trial, ...]:
        parameters = space(policy, self._base)
        own = trials[0].values
        mixed = [{**own, **_taken(parameters, each)} for each in others]
        tried = [each.values for each in trials]
        fresh = [each for at, each in enumerate(mixed) if each not in [*tried, *mixed[:at]]]
        figures = self._evaluate(policy, parameters, fresh)
        return ordered([*trials, *map(Trial, fresh, figures)], self._limits)

    def _run(self, policy: PolicyName, trial: Trial) -> Run:
        return self._seen[policy, tuple(trial.values.values())]


def numbers(base: Setting) -> list[Values]:
    """Return all numbers of drafters and verifiers within the bounds, the cheapest first."""
    price = base.scaling.goodput.price
    drafters, verifiers = base.drafters.max_replicas, base.verifiers.max_replicas
    pairs = [(d, v) for d in range(drafters + 1) for v in range(1, verifiers + 1)]
    pairs.sort(key=lambda pair: price * pair[0] + pair[1])
    return [{"drafters": drafters, "verifiers": verifiers} for drafters, verifiers in pairs]


def _taken(parameters: Sequence[Parameter], other: Values) -> Values:
    """Return what a policy takes over of another one's values; static numbers are least ones.

    With those nothing else asks for more, where a policy has what does: it is at its highest.
    """
    own = {each.name: each.high for each in parameters}
    if "busy" in own and "verifiers" in other:
        never = {key: own[key] for key in own if key in _ASKS_FOR_MORE}
        other = {
            "least_verifiers": other["verifiers"],
            "least_drafters": other["drafters"],
            **never,
        }
    return {key: other[key] for key in own if key in other}


def _starts(
    policy: PolicyName, parameters: Sequence[Parameter], base: Setting, limits: Limits
) -> Sequence[Values]:
    """Return what is tried first.

    A verifier is busy all the time while it has one session: there its KV and what waits, and not
    its busy share, tell how many are needed.
    """
    own = {each.name: default(base, each) for each in parameters}
    if policy == "goodput":
        own["token_s"] = min(0.5, max(0.005, limits.tpot_s))
    by_kv = own | {"busy": 1.0, "kv": 0.5, "up_hold_s": 2.0}
    # For as short as they are needed, by KV alone, with more or less of it to spare.
    most_waiting = next(each.high for each in parameters if each.name == "waiting")
    brief = by_kv | {"down_hold_s": 5.0, "waiting": most_waiting}
    two = by_kv | {"least_verifiers": min(2, base.verifiers.max_replicas)}
    return [own, by_kv, two, *(brief | {"kv": kv} for kv in (0.4, 0.5, 0.9))]
