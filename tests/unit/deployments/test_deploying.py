"""What a changed file does to running replicas: as little as it must."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.serve._private.deploy_utils import get_app_code_version
from ray.serve.schema import ApplicationStatus, ServeDeploySchema

from deployments.app import build
from deployments.config import DIFFUSION_FILE, EMBEDDED_FILE, RAMP_FILE, ROOT, ServeFile, read
from deployments.serve import deploying
from deployments.serve.deploying import Change, changes, serve_values
from deployments.serve.platform import applications
from foredraft.errors import Unavailable

PARTS = ("ingress", "drafter", "canary", "verifier")
UNCHANGED = dict.fromkeys(PARTS, Change.NONE)


def changed(path: str, value: Any) -> ServeFile:
    """The embedded pair's file with another value under a path of its arguments."""
    values = read(EMBEDDED_FILE).model_dump()
    at = values["applications"][0]["args"]
    *keys, last = path.split(".")
    for key in keys:
        at = at[key]
    at[last] = value
    return ServeFile.model_validate(values)


def update(before: ServeFile, after: ServeFile) -> dict[str, Change]:
    [old], [new] = (serve_values(file)["applications"] for file in (before, after))
    return changes(old, new)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("orchestrator.proposal", "cps", {"ingress": Change.IN_PLACE}),
        ("orchestrator.adl", {"name": "fixed", "k": 3}, {"ingress": Change.IN_PLACE}),
        ("ingress.acceptance.low", 0.2, {"ingress": Change.IN_PLACE}),
        ("verifier.drain_s", 9, {"ingress": Change.IN_PLACE, "verifier": Change.IN_PLACE}),
        ("ingress.num_cpus", 0.2, {"ingress": Change.PROCESS}),
        ("ingress.pin_cpus", [0], {"ingress": Change.PROCESS}),
        ("ingress.cors_origins", ["*"], {"ingress": Change.PROCESS}),
        (
            "verifier.service.kv_tokens",
            4096,
            {"ingress": Change.IN_PLACE, "verifier": Change.PROCESS},
        ),
        (
            "drafter.service.candidates",
            8,
            {"ingress": Change.IN_PLACE, "drafter": Change.PROCESS},
        ),
        ("drafter.num_replicas", 3, {"ingress": Change.IN_PLACE, "drafter": Change.NUMBER}),
        ("verifier.num_replicas", 2, {"ingress": Change.IN_PLACE, "verifier": Change.NUMBER}),
    ],
)
def test_a_change_reaches_no_more_than_it_must(
    path: str, value: Any, expected: dict[str, Change]
) -> None:
    file = read(EMBEDDED_FILE)
    assert update(file, file) == UNCHANGED
    assert update(file, changed(path, value)) == UNCHANGED | expected


def test_a_canary_comes_beside_the_others() -> None:
    file = read(EMBEDDED_FILE)
    service = file.application.args.drafter.service.model_dump() | {"candidates": 8}
    canary = changed("drafter.canary", {"service": service})
    found = update(file, canary)
    assert found == UNCHANGED | {"ingress": Change.IN_PLACE, "canary": Change.PROCESS}
    [application] = serve_values(canary)["applications"]
    [options] = [each for each in application["deployments"] if each["name"] == "canary"]
    assert options["autoscaling_config"]["min_replicas"] == 1
    assert options["user_config"]["service"]["candidates"] == 8


def test_serve_takes_the_values_and_sees_the_same_code_in_them() -> None:
    before, after = read(EMBEDDED_FILE), changed("drafter.service.candidates", 8)
    versions = {
        get_app_code_version(ServeDeploySchema.model_validate(serve_values(file)).applications[0])
        for file in (before, after)
    }
    assert len(versions) == 1


def test_the_application_has_a_deployment_for_each_that_is_configured() -> None:
    for file in (read(EMBEDDED_FILE), read(DIFFUSION_FILE)):
        [application] = serve_values(file)["applications"]
        whole = build(application.get("args", {}))
        others: Any = whole._bound_deployment.init_kwargs
        bound = [whole, *(each for each in others.values() if each)]
        built = {each._bound_deployment.name for each in bound}
        assert built == {each["name"] for each in application["deployments"]}


def test_a_denoiser_that_comes_replaces_the_others_and_one_that_changes_does_not() -> None:
    diffusion = read(DIFFUSION_FILE)
    found = update(read(EMBEDDED_FILE), diffusion)
    assert found == dict.fromkeys(PARTS, Change.PROCESS) | {"denoiser": Change.NEW}
    values = diffusion.model_dump()
    values["applications"][0]["args"]["denoiser"]["service"]["kv_tokens"] = 4096
    found = update(diffusion, ServeFile.model_validate(values))
    assert found == UNCHANGED | dict.fromkeys(("ingress", "denoiser"), Change.PROCESS)


def test_bounds_of_a_pool_are_its_number() -> None:
    values = yaml.safe_load(RAMP_FILE.read_text())
    values["applications"][0]["args"]["drafter"]["autoscaling"]["max_replicas"] = 4
    found = update(read(RAMP_FILE), ServeFile.model_validate(values))
    assert found["drafter"] is Change.NUMBER and found["verifier"] is Change.NONE


def test_what_other_means_deployed_is_replaced() -> None:
    [application] = serve_values(read(EMBEDDED_FILE))["applications"]
    assert set(changes(None, application).values()) == {Change.NEW}
    by_args = application | {"args": {"model_name": "x"}}
    assert set(changes(by_args, application).values()) == {Change.PROCESS}


@pytest.mark.parametrize("module", ["deployments.serve.cluster", "deployments.serve.deploying"])
def test_ray_is_not_imported_before_its_environment_is_set(module: str) -> None:
    code = f"import sys, {module}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_pool_with_gpus_stops_a_replica_before_it_starts_another() -> None:
    for gpus, surge, expected in ((0, None, 25), (1, None, 0), (1, 50, 50), (0, 0, 0)):
        values = read(EMBEDDED_FILE).model_dump()
        pool = values["applications"][0]["args"]["drafter"]
        pool |= {"num_gpus": gpus, "surge_percent": surge}
        [application] = serve_values(ServeFile.model_validate(values))["applications"]
        [drafter] = [each for each in application["deployments"] if each["name"] == "drafter"]
        assert drafter["max_surge_percent"] == expected


class Application:
    """What Serve says of an application whose one deployment fails, look by look."""

    def __init__(self, error: str, looks: int) -> None:
        message = f"A replica failed to start with exception. Error:\nTraceback ...\n{error}\n"
        self.looks, self._looks, self._message = 0, looks, message

    def status(self, name: str) -> SimpleNamespace:
        assert name == "own"
        self.looks += 1
        over = self.looks > self._looks
        status = ApplicationStatus.DEPLOY_FAILED if over else ApplicationStatus.DEPLOYING
        return SimpleNamespace(
            app_status=SimpleNamespace(status=status, message=""),
            deployment_statuses=[SimpleNamespace(name="verifier", message=self._message)],
        )


@pytest.mark.parametrize(
    ("error", "anew", "awaited"),
    [
        ("foredraft.errors.ConfigError: device cuda:99 is not available", True, False),
        ("foredraft.errors.ConfigError: device cuda:99 is not available", False, True),
        ("foredraft.errors.Unavailable: no replica is running", True, True),
    ],
)
def test_a_refused_configuration_is_not_tried_again_where_it_is_new(
    monkeypatch: pytest.MonkeyPatch, error: str, anew: bool, awaited: bool
) -> None:
    application = Application(error, looks=9)
    monkeypatch.setattr(applications, "application_status", application.status)
    monkeypatch.setattr(deploying, "_POLL_S", 0.0)
    with pytest.raises(Unavailable) as raised:
        deploying.wait_until_deployed("own", 10.0, anew)
    assert str(raised.value) == f"verifier: {error}"
    assert (application.looks > 9) == awaited
