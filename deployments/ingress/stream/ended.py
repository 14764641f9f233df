"""What a session came to, whatever it ended by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foredraft.types import FinishReason
from orchestrator.report import SpeculationReport
from orchestrator.request import StepEvent


class Ended(NamedTuple):
    """A session that ended after so many seconds.

    finish is None where it failed or its client left. The first tokens came after first_token_s,
    None where there were none; cached_tokens of the prompt were not read for it.
    """

    report: SpeculationReport
    finish: FinishReason | None
    seconds: float
    first_token_s: float | None
    first_tokens: int
    cached_tokens: int
    rounds: Sequence[StepEvent] = ()

    @property
    def tokens(self) -> int:
        """Committed tokens."""
        return self.report.tokens
