"""Each policy's parameters, as far as they are searched, and settings from values of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from deployments.autoscaling.config import BoundsConfig, ScalingConfig
from foredraft.strict import StrictModel, parse

PolicyName = Literal["static", "utilisation", "goodput"]
POLICIES: tuple[PolicyName, ...] = ("static", "utilisation", "goodput")


class Setting(StrictModel):
    """What is tuned: the policy with its parameters, and the bounds of both pools."""

    scaling: ScalingConfig
    drafters: BoundsConfig
    verifiers: BoundsConfig


class Parameter(NamedTuple):
    """A parameter: the paths in a setting that have its value, and its range, ends included."""

    name: str
    paths: tuple[str, ...]
    low: float
    high: float
    # Whether it is searched by its logarithm, and whether it is a whole number.
    log: bool = False
    whole: bool = False


# By the parameters' names.
Values = Mapping[str, float]


def space(policy: PolicyName, base: Setting) -> tuple[Parameter, ...]:
    """Return the parameters of a policy that are searched, within the bounds of a setting.

    Prices are none of them: they are facts. Both pools follow equally fast.
    """
    most_drafters, most_verifiers = base.drafters.max_replicas, base.verifiers.max_replicas
    if policy == "static":
        drafters = ("scaling.static.drafters", "drafters.initial_replicas")
        verifiers = ("scaling.static.verifiers", "verifiers.initial_replicas")
        return (
            Parameter("drafters", drafters, 0, most_drafters, whole=True),
            Parameter("verifiers", verifiers, 1, most_verifiers, whole=True),
        )
    demand = f"scaling.{policy}.verifiers"
    shared = (
        Parameter("busy", (f"{demand}.busy",), 0.3, 1.0),
        Parameter("kv", (f"{demand}.kv",), 0.05, 1.0, log=True),
        Parameter("waiting", (f"{demand}.waiting",), 0.5, 32, log=True),
        Parameter("least_verifiers", ("verifiers.min_replicas",), 1, most_verifiers, whole=True),
        Parameter("least_drafters", ("drafters.min_replicas",), 0, most_drafters, whole=True),
        Parameter("up_hold_s", _both("up_hold_s"), 0, 20),
        Parameter("down_hold_s", _both("down_hold_s"), 5, 300, log=True),
        Parameter("drafter_busy", (f"scaling.{policy}.drafter_busy",), 0.2, 1.0),
    )
    if policy == "utilisation":
        return shared
    return (
        *shared,
        Parameter("worth", ("scaling.goodput.worth",), 0.0, 1.0),
        Parameter("token_s", ("scaling.goodput.token_s",), 0.005, 0.5, log=True),
    )


def _both(key: str) -> tuple[str, str]:
    return f"scaling.drafter_steps.{key}", f"scaling.verifier_steps.{key}"


def default(base: Setting, parameter: Parameter) -> float:
    """Return a parameter's value in a setting, moved into its range; its middle for none."""
    found: Any = base
    for key in parameter.paths[0].split("."):
        found = getattr(found, key)
    if found is None:
        found = parameter.low if parameter.whole else (parameter.low * parameter.high) ** 0.5
    return min(max(float(found), parameter.low), parameter.high)


def with_values(
    base: Setting, policy: PolicyName, parameters: tuple[Parameter, ...], values: Values
) -> Setting:
    """Return a setting of a policy with values in place of its own."""
    found = base.model_dump()
    found["scaling"]["policy"] = policy
    for parameter in parameters:
        for path in parameter.paths:
            *sections, key = path.split(".")
            section = found
            for name in sections:
                section = section[name]
            value = values[parameter.name]
            section[key] = int(value) if parameter.whole else value
    return parse(Setting, found)
