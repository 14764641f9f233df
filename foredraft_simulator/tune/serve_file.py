"""A Serve file with a policy's parameters in place of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deployments.config import ServeFile
from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft_simulator.tune.space import Setting

_POLICY = "deployments.autoscaling.serve_policy:ScalingPolicy"


def written(base: Path, setting: Setting, comment: str) -> str:
    """Return the text of a Serve file, whose pools are scaled by a setting.

    All else is the base file's. Raise ConfigError where that is none.
    """
    try:
        values: dict[str, Any] = yaml.safe_load(base.read_text())
    except OSError as error:
        raise ConfigError(f"{base}: {error.strerror}", param="base") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{base}: not YAML: {error}", param="base") from None
    parse(ServeFile, values)
    [entry] = values["applications"]
    scaling = setting.scaling.model_dump(mode="json", exclude_defaults=True)
    # The policy by name, even the default one: it is what was chosen.
    scaling = {"policy": setting.scaling.policy} | scaling
    entry["autoscaling_policy"] = {"policy_function": _POLICY, "policy_kwargs": scaling}
    args = entry.setdefault("args", {})
    for name, bounds in (("drafter", setting.drafters), ("verifier", setting.verifiers)):
        pool = args.setdefault(name, {})
        pool["autoscaling"] = bounds.model_dump(mode="json", exclude_none=True)
    parse(ServeFile, values)
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + yaml.safe_dump(values, sort_keys=False, width=100)
