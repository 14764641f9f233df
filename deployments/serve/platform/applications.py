"""What Serve runs: applications deployed from files, their status, why they failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foredraft.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from ray.serve._private.application_state import StatusOverview


def deploy_file(values: dict[str, Any]) -> None:
    """Deploy a Serve config file's values beside what other files deployed; returns before it runs.

    serve.run takes no application-level autoscaling policy. Serve deletes what a new file lacks:
    so it gets the other applications again, as they are.
    """
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    client = _get_global_client()
    assert client is not None
    own = {application["name"] for application in values["applications"]}
    others = [each for name, each in deployed_applications().items() if name not in own]
    values = values | {"applications": [*others, *values["applications"]]}
    client.deploy_apps(ServeDeploySchema.model_validate(values))


def deployed_applications() -> dict[str, dict[str, Any]]:
    """Return the applications that were deployed from files, as those had them, by name."""
    from ray.serve.context import _get_global_client

    client = _get_global_client()
    assert client is not None
    found: dict[str, dict[str, Any]] = client.get_serve_details()["applications"]
    configs = {name: each["deployed_app_config"] for name, each in found.items()}
    return {name: config for name, config in configs.items() if config}


def application_status(application: str) -> StatusOverview:
    """Return the status of an application, NOT_STARTED if there is none, and of its deployments.

    serve.status makes the schema of all that runs: too slow to be called again and again beside
    replicas that load.
    """
    from ray.serve._private.application_state import ApplicationStatusInfo, StatusOverview
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ApplicationStatus

    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return StatusOverview(ApplicationStatusInfo(ApplicationStatus.NOT_STARTED))
    found: StatusOverview = client.get_serve_status(application)
    return found


def is_starting(application: str) -> bool:
    """Return whether an application has neither begun to run nor failed."""
    from ray.serve.schema import ApplicationStatus

    starting = {ApplicationStatus.NOT_STARTED, ApplicationStatus.DEPLOYING}
    return application_status(application).app_status.status in starting


def require_running(application: str) -> None:
    """Raise Unavailable, with the reasons, unless an application runs as it was deployed."""
    found = application_status(application).app_status
    if found.status != "RUNNING":
        reasons = deployment_failures(application) or [found.message or str(found.status)]
        raise Unavailable("; ".join(reasons))


def deployment_failures(application: str) -> list[str]:
    """Return why the application's deployments failed, a line for each that did.

    Serve's message holds a replica's traceback, whose last line has the cause.
    """
    failures = []
    for deployment in application_status(application).deployment_statuses:
        if "Traceback" in deployment.message:
            lines = [line for line in deployment.message.splitlines() if line.strip()]
            failures.append(f"{deployment.name}: {lines[-1].strip()}")
    return failures


def refusals(application: str) -> list[str]:
    """Return those of deployment_failures in which a replica refused its configuration."""
    refused = f": {ConfigError.__module__}.{ConfigError.__qualname__}: "
    return [failure for failure in deployment_failures(application) if refused in failure]
