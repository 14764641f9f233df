"""A cluster whose ingress, verifier and drafter talk by mutual TLS, on the ring's Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.preflight import check_models
from deployments.serve.cluster import RunningCluster, running
from foredraft.errors import ConfigError
from foredraft_cli.certificates import app
from orchestrator.length.config import FixedConfig
from tests.support.cluster import free_port, post

BODY = {"prompt": "def mean(values):\n", "max_tokens": 48, "seed": 3, "return_token_ids": True}


def configured(folder: Path) -> ServeFile:
    values = read(EMBEDDED_FILE).model_dump()
    [application] = values["applications"]
    application |= {"name": "sealed", "route_prefix": "/sealed"}
    args = application["args"]
    args["mtls"] = str(folder)
    args["orchestrator"]["adl"] = FixedConfig(k=5).model_dump()
    args["ingress"]["direct"]["port"] = free_port()
    return ServeFile.model_validate(values)


@pytest.fixture(scope="module")
def sealed(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("certificates")
    assert CliRunner().invoke(app, [str(folder)]).exit_code == 0
    with running(configured(folder)) as started:
        yield started


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_drafts_and_verdicts_come_through(
    cluster: RunningCluster, sealed: RunningCluster, temperature: float
) -> None:
    body = BODY | {"temperature": temperature}
    status, answer = await post(sealed, body | {"speculative": {"rounds": True}})
    assert status == 200, answer
    _, plain = await post(cluster, body | {"speculative": {"enabled": False}})
    assert answer["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    drafted = [each for each in answer["choices"][0]["rounds"] if each["draft"]["tokens"]]
    # A verifier asks the drafter itself, with a certificate of its own.
    assert {each["led_by"] for each in drafted} >= {"verifier"}


def test_missing_certificates_are_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt") as caught:
        check_models(configured(tmp_path).application.args)
    assert caught.value.param == "mtls"
