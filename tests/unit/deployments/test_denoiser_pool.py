"""A second target in the configuration: what it must fit, and what its replicas are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployments.config import ForedraftConfig
from deployments.serve import parts
from foredraft.denoising import Dynamic, Static
from foredraft.errors import ConfigError
from foredraft.strict import parse


def configured(**denoiser: Any) -> ForedraftConfig:
    given = {"service": {"model": "/models/blocks"}, **denoiser}
    return parse(ForedraftConfig, {"denoiser": given})


def test_there_is_a_deployment_where_one_is_configured() -> None:
    assert parts.DENOISER not in parts.deployment_options(ForedraftConfig())
    config = configured(num_replicas=2).model_copy(update={"mtls": Path("/certificates")})
    options = parts.deployment_options(config)[parts.DENOISER]
    assert options["num_replicas"] == 2
    given = parse(parts.DenoiserReplica, options["user_config"])
    assert (given.service.model, given.service.mtls) == (
        Path("/models/blocks"),
        Path("/certificates"),
    )


def test_an_ingress_is_replaced_for_another_model_and_not_for_another_number() -> None:
    def revision(config: ForedraftConfig) -> Any:
        options = parts.deployment_options(config)[parts.INGRESS]
        return options["ray_actor_options"]["runtime_env"]

    assert revision(configured()) == revision(configured(num_replicas=3))
    assert revision(configured()) != revision(configured(drafts=1))
    assert revision(configured()) != revision(ForedraftConfig())


def test_unmasking_has_the_rule_of_its_kind() -> None:
    pool = configured().denoiser
    assert pool is not None and pool.unmasking.rule() == Dynamic(0.9) and pool.name == "blocks"
    pool = configured(unmasking={"kind": "static", "per_step": 2}, model_name="x").denoiser
    assert pool is not None and pool.unmasking.rule() == Static(2) and pool.name == "x"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drafts": 9}, "most_drafts"),
        ({"model_name": ForedraftConfig().name}, "name of the other target"),
        ({"service": {"model": "/m", "mtls": "/c"}}, "mtls"),
        ({"unmasking": {"kind": "dynamic", "threshold": 1}}, "threshold"),
        ({"service": {"model": "/m", "tensor_parallel": 2}}, "tensor_parallel"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured(**changes)
