"""What the playground may do."""

from __future__ import annotations

from pydantic import Field

from foredraft.strict import StrictModel


class PlaygroundConfig(StrictModel):
    """The page at the application's first URL."""

    enabled: bool = Field(default=True, description="Whether the page is served.")
    kill_drafter: bool = Field(
        default=False,
        description="Whether its button may kill a drafter's process; Serve starts another one.",
    )
