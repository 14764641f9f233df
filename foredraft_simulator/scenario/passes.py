"""What a forward pass takes, as it was measured: a curve in place of a modelled device."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from foredraft.pacing.config import Work
from foredraft.strict import StrictModel

Rows = Annotated[float, Field(ge=0, le=1e6)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class CurveConfig(StrictModel):
    """Seconds of a pass by its rows, with lines between; after the last the last line goes on."""

    rows: tuple[Rows, ...] = Field(
        min_length=1, max_length=1024, description="Numbers of rows, ascending."
    )
    seconds: tuple[Seconds, ...] = Field(
        min_length=1, max_length=1024, description="What a pass over so many rows takes."
    )
    context_s: float = Field(
        default=0.0, ge=0, description="What each token before the rows adds, in seconds."
    )
    session_s: float = Field(
        default=0.0, ge=0, description="What each session after the first adds, in seconds."
    )

    @model_validator(mode="after")
    def _a_curve(self) -> CurveConfig:
        if len(self.rows) != len(self.seconds):
            raise ValueError("rows and seconds must have one length")
        if any(a >= b for a, b in zip(self.rows, self.rows[1:], strict=False)):
            raise ValueError("rows must ascend")
        return self

    def pass_s(self, work: Work) -> float:
        """Return the seconds of a pass."""
        seconds = float(np.interp(work.rows, self.rows, self.seconds))
        beyond = work.rows - self.rows[-1]
        if beyond > 0 and len(self.rows) > 1:
            rise = (self.seconds[-1] - self.seconds[-2]) / (self.rows[-1] - self.rows[-2])
            seconds += max(0.0, rise) * beyond
        return (
            seconds + self.context_s * work.context + self.session_s * max(0.0, work.sessions - 1)
        )
