"""What a run is judged by: its cost, its latencies at a percentile, how often pools changed."""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import Field

from foredraft.strict import StrictModel


class Limits(StrictModel):
    """The latencies that a policy has to keep at a percentile of the requests."""

    percentile: float = Field(default=99.0, gt=0, le=100, description="Percentile of requests.")
    ttft_s: float = Field(default=2.0, gt=0, description="Time to the first token, in seconds.")
    tpot_s: float = Field(
        default=0.05, gt=0, description="Time per output token after it, in seconds."
    )


class Figures(NamedTuple):
    """A run in figures.

    cost is in hours of a verifier; latencies are in seconds, at the limits' percentile; verifiers
    and drafters are means over time; decisions_h counts changes of either pool's size per hour.
    """

    cost: float
    ttft_s: float
    tpot_s: float
    verifiers: float
    drafters: float
    decisions_h: float
    tokens_s: float
    failed: int

    def excess(self, limits: Limits) -> float:
        """Return by what share the worse latency is above its limit; 0 where the limits are kept.

        A request that failed had no latency at all: the limits are not kept.
        """
        if self.failed:
            return math.inf
        worst = max(self.ttft_s / limits.ttft_s, self.tpot_s / limits.tpot_s)
        # No request at all, or none of two tokens, has no latency.
        return max(0.0, worst - 1) if math.isfinite(worst) else 0.0
