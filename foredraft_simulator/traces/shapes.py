"""Load shapes without a trace: Poisson arrivals at a rate that changes, log-normal lengths."""

from __future__ import annotations

import math
import random
from typing import Literal

from pydantic import Field, model_validator

from foredraft.strict import StrictModel
from foredraft_simulator.traces.arrival import Arrival, Trace

Shape = Literal["steady", "ramp", "burst", "day"]


class ShapeConfig(StrictModel):
    """A load shape; rates are in requests per second."""

    shape: Shape = Field(description="steady; up and down again; bursts; a day's curve.")
    rate: float = Field(default=1.0, gt=0, le=1e4, description="Least rate; of steady the rate.")
    peak: float = Field(default=4.0, gt=0, le=1e4, description="Highest rate.")
    duration_s: float = Field(default=600.0, gt=0, le=1e6, description="Time in all.")
    period_s: float = Field(
        default=200.0, gt=0, description="Time from burst to burst, or of a day."
    )
    burst_s: float = Field(default=40.0, gt=0, description="Time of a burst.")
    prompt_tokens: int = Field(default=512, ge=1, le=1_000_000, description="Mean prompt.")
    output_tokens: int = Field(default=128, ge=1, le=1_000_000, description="Mean output.")
    sigma: float = Field(
        default=0.6, ge=0, le=3, description="Standard deviation of the lengths' logarithms."
    )

    @model_validator(mode="after")
    def _bounded(self) -> ShapeConfig:
        if self.shape != "steady" and self.peak < self.rate:
            raise ValueError("rate <= peak must hold")
        if max(self.rate, self.peak) * self.duration_s > 6e6:
            raise ValueError("peak x duration_s is more than 6 million requests")
        return self

    def rate_at(self, time_s: float) -> float:
        """Return the rate at a time."""
        return self.rate + (self.peak - self.rate) * self._share(time_s)

    def _share(self, time_s: float) -> float:
        """Return where between the least and the highest rate a moment is."""
        if self.shape == "ramp":
            return 1 - abs(2 * time_s / self.duration_s - 1)
        if self.shape == "burst":
            # The first burst comes after a quiet time.
            quiet_s = self.period_s - min(self.burst_s, self.period_s)
            return float(time_s % self.period_s >= quiet_s)
        if self.shape == "day":
            return (1 - math.cos(2 * math.pi * time_s / self.period_s)) / 2
        return 0.0


def shaped(config: ShapeConfig, seed: int = 0) -> Trace:
    """Return a load of a shape: a Poisson process, thinned from its highest rate."""
    rng = random.Random(seed)
    highest = config.rate if config.shape == "steady" else config.peak
    arrivals: list[Arrival] = []
    now = 0.0
    while (now := now + rng.expovariate(highest)) < config.duration_s:
        # Drawn for every candidate: one rate's change does not change the others' lengths.
        keep = rng.random() * highest < config.rate_at(now)
        prompt = _length(rng, config.prompt_tokens, config.sigma)
        output = _length(rng, config.output_tokens, config.sigma)
        if keep:
            arrivals.append(Arrival(now, prompt, output))
    return Trace(tuple(arrivals), config.shape)


def _length(rng: random.Random, mean: int, sigma: float) -> int:
    return max(1, round(rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))
