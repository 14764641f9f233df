"""Prints docs/scenarios.md: every key of a simulated scenario, from the configuration models."""

from __future__ import annotations

import sys

from deployments.autoscaling.config import BoundsConfig, ScalingConfig
from foredraft.pacing.config import PaceConfig
from foredraft_simulator.scenario.scenario import Scenario
from orchestrator.config import OrchestratorConfig
from scripts.config_reference import Model, sections

HEAD = """# Scenarios

A scenario is a strict YAML file of the cluster that [`foredraft simulate`](simulator.md) simulates.
Every key has a default: an empty file is one pair on two H100s. `orchestrator`, `autoscaling`,
`scaling` and `pace` have the keys that they have in a Serve file:
[configuration](configuration.md).

This page is generated from the configuration models: `make docs`.
"""

ELSEWHERE: set[Model] = {OrchestratorConfig, ScalingConfig, BoundsConfig, PaceConfig}


if __name__ == "__main__":
    sys.stdout.write("\n".join([HEAD, *sections(Scenario, "", set(ELSEWHERE))]))
