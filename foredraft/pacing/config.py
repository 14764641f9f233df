"""What a forward pass takes on a modelled device: the parameters, and the seconds. Pure."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from foredraft.strict import StrictModel


class Work(NamedTuple):
    """What a pass does: its rows, of so many sessions, which hold context tokens in all before."""

    rows: float
    context: float
    sessions: float


class PaceConfig(StrictModel):
    """A model on a device that is not there, whose time each forward pass takes.

    A pass reads the weights once and each session's KV once, and computes its rows:
    overhead + sessions x per session + max(bytes / bandwidth, FLOPs / peak). Left out is the
    arithmetic of attention, under 5 % of the weights' at a thousand tokens of context.
    """

    weight_bytes: float = Field(gt=0, description="Bytes of the weights that a pass reads.")
    flops_per_token: float = Field(gt=0, description="Floating-point operations of one row.")
    kv_bytes_per_token: float = Field(
        ge=0, description="Bytes of the KV of one token before a session's rows."
    )
    bandwidth: float = Field(gt=0, description="Peak memory bandwidth, in bytes per second.")
    peak_flops: float = Field(gt=0, description="Peak operations per second, dense.")
    bandwidth_fraction: float = Field(
        default=0.8, gt=0, le=1, description="Share of the bandwidth that is achieved."
    )
    flops_fraction: float = Field(
        default=0.6, gt=0, le=1, description="Share of the peak operations that is achieved."
    )
    overhead_s: float = Field(
        default=0.0, ge=0, description="Time of each pass beside these, in seconds."
    )
    session_s: float = Field(
        default=0.0, ge=0, description="Time that each session in a pass adds, in seconds."
    )
    slowdown: float = Field(
        default=1.0,
        ge=1,
        description="Factor by which passes take longer than on the device, so that what this "
        "machine adds by itself is as small beside a pass as it is on the device's host.",
    )

    def pass_s(self, work: Work) -> float:
        """Return the seconds of a pass on the device, without the slowdown."""
        rows, context, sessions = work
        read = self.weight_bytes + self.kv_bytes_per_token * context
        reading_s = read / (self.bandwidth * self.bandwidth_fraction)
        computing_s = self.flops_per_token * rows / (self.peak_flops * self.flops_fraction)
        return self.overhead_s + self.session_s * sessions + max(reading_s, computing_s)
