"""What came of the requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """Counts of requests, and how long any answer under way was silent, in seconds."""

    compared: int = 0
    identical: int = 0
    resumed: int = 0
    cancelled: int = 0
    bombs: int = 0
    failed_by_drafter: int = 0
    other_failures: Counter[str] = field(default_factory=Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)
    longest_gap_s: float = 0.0

    def answered(self, body: dict[str, Any], tokens: list[list[int]], plain: Any) -> None:
        """Count a completed answer, held to plain decoding's."""
        self.compared += 1
        if tokens == plain:
            self.identical += 1
        else:
            self.differences.append({"body": body, "tokens": tokens, "plain": plain})

    def failed(self, what: str, felt: set[str]) -> None:
        """Count a request that failed while some services had faults."""
        if felt == {"drafter"}:
            self.failed_by_drafter += 1
        blamed = "+".join(sorted(felt)) or "no fault"
        self.other_failures[f"{what} ({blamed})"] += felt != {"drafter"}

    def silent(self, seconds: float) -> None:
        """Take note of a pause in an answer."""
        self.longest_gap_s = max(self.longest_gap_s, seconds)
