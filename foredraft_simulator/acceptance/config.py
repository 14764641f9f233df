"""How right drafts are: the scenario's part about acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from foredraft.strict import StrictModel
from foredraft_simulator.acceptance.by_depth import ByDepth
from foredraft_simulator.acceptance.drawn import Acceptance
from foredraft_simulator.acceptance.recorded import Recorded
from foredraft_simulator.recorded_runs.records import read_run

Rate = Annotated[float, Field(ge=0, le=1)]


class ByDepthConfig(StrictModel):
    """Paths, each of whose tokens is accepted with a probability by its depth."""

    kind: Literal["by_depth"] = Field(default="by_depth", description="Name of this kind.")
    rates: tuple[Rate, ...] = Field(
        default=(0.75,),
        min_length=1,
        max_length=256,
        description="Acceptance of the first, second, ... token of a draft, given those before "
        "it; the last one holds for all that follow.",
    )
    request_spread: float = Field(
        default=0.0,
        ge=0,
        le=5,
        description="Standard deviation of the log-odds of acceptance between requests.",
    )
    round_spread: float = Field(
        default=0.0, ge=0, le=5, description="The same between the rounds of a request."
    )
    guess_rate: Rate = Field(
        default=0.6,
        description="Share of right guesses of the token after the last accepted one, for drafts "
        "ahead of the verdict.",
    )

    def acceptance(self, seed: int) -> Acceptance:
        """Return the model."""
        return ByDepth(self.rates, self.request_spread, self.round_spread, self.guess_rate, seed)


class RecordedConfig(StrictModel):
    """Drafts that keep what those of a recorded run kept."""

    kind: Literal["recorded"] = Field(default="recorded", description="Name of this kind.")
    run: Path = Field(
        description="File of `foredraft record`; a relative path is looked for beside the scenario."
    )

    def acceptance(self, seed: int) -> Acceptance:
        """Return the model; raise ConfigError for a file that cannot be read."""
        return Recorded(read_run(self.run), seed)


def _kind(values: Any) -> str:
    kind = values.get("kind", "by_depth") if isinstance(values, dict) else values.kind
    return str(kind)


AcceptanceConfig = Annotated[
    Annotated[ByDepthConfig, Tag("by_depth")] | Annotated[RecordedConfig, Tag("recorded")],
    Discriminator(_kind),
]
