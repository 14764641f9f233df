"""What the replicas of a running application hold for its requests."""

from __future__ import annotations

from deployments.serve.platform.replicas import call_every_replica
from foredraft.errors import ForedraftError

SERVICES = ("verifier", "drafter")
# What sessions hold, of each service's gauges.
_HELD = ("sessions", "kv_used", "streams", "queue")
_TIMEOUT_S = 10.0


def held(application: str) -> dict[str, float] | None:
    """Return what is not zero, by service and gauge; None where a replica does not answer."""
    from ray import serve
    from ray.exceptions import RayError

    found: dict[str, float] = {}

    def count(name: str, number: float) -> None:
        if number:
            found[name] = found.get(name, 0) + number

    try:
        ingress = serve.get_deployment_handle("ingress", application)
        for requests in call_every_replica(ingress, "under_way", timeout_s=_TIMEOUT_S):
            count("ingress requests", requests)
        for service in SERVICES:
            handle = serve.get_deployment_handle(service, application)
            for _, gauges in call_every_replica(handle, "status", timeout_s=_TIMEOUT_S):
                for name in _HELD:
                    count(f"{service} {name}", gauges.get(name, 0))
    except (RayError, TimeoutError, ForedraftError):
        return None
    return found
