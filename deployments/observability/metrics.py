"""What the ingress counts, for Ray's Prometheus endpoint."""

from ray.serve.metrics import Counter

from orchestrator.report import SpeculationReport


class Metrics:
    """The counters of one replica; make it inside one."""

    def __init__(self) -> None:
        self._refused = Counter(
            "foredraft_drafter_refusals",
            "Requests that were decoded plainly because no drafter fits the target or the request.",
        )

    def ended(self, report: SpeculationReport) -> None:
        """Count a request that was decoded to its end."""
        if report.drafter_refusal is not None:
            self._refused.inc()
