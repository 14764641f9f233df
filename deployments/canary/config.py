"""A second configuration of the drafter, for a share of the sessions."""

from __future__ import annotations

from pydantic import Field

from deployments.canary.comparison import ComparisonConfig
from drafter_service.config import DrafterConfig
from foredraft.strict import StrictModel


class CanaryConfig(StrictModel):
    """The canary: compared with the drafter, then promoted or rolled back."""

    share: float = Field(default=0.1, gt=0, lt=1, description="Share of the sessions.")
    num_replicas: int = Field(default=1, ge=1, le=1024, description="Number of its replicas.")
    service: DrafterConfig = Field(description="The service in each of them.")
    comparison: ComparisonConfig = Field(
        default=ComparisonConfig(), description="When it is promoted or rolled back."
    )
    start_s: float = Field(
        default=300.0,
        gt=0,
        description="Time for its first replica to run, in seconds; then it is rolled back.",
    )
