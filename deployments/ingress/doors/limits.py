"""How many requests a key may have: a minute, and at once. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

# A key that was silent may catch up with so many seconds' requests at once.
_BURST_S = 10.0


@dataclass(slots=True)
class Allowance:
    """What is left of one key's limits; None sets none."""

    requests_per_minute: float | None = None
    concurrent_requests: int | None = None
    _left: float | None = None
    _filled: float = 0.0
    _under_way: int = 0

    def take(self, now: float) -> float | None:
        """Begin a request; return None if it may, else after how many seconds to try again."""
        if self.concurrent_requests is not None and self._under_way >= self.concurrent_requests:
            return 1.0
        if self.requests_per_minute is not None:
            rate = self.requests_per_minute / 60
            most = max(1.0, rate * _BURST_S)
            before = most if self._left is None else self._left
            self._left = min(most, before + rate * (now - self._filled))
            self._filled = now
            if self._left < 1:
                return (1 - self._left) / rate
            self._left -= 1
        self._under_way += 1
        return None

    def give_back(self) -> None:
        """End a request."""
        self._under_way -= 1
