"""The fused features of a session's text, on their way from the passes to its verdicts.

Features of rows that were not computed cannot be had, so a session that asks for them shares only
the KV of text whose features are not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from foredraft.features.wire import size
from verifier_service.models.port import FeatureModel, Segment, TargetModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from verifier_service.rules.rules import Logits
    from verifier_service.targets.session import Session


class FeatureLog:
    """What one session's passes told of its text. Pure.

    Features of the text's first `told` tokens are with who asked, or were not asked for; those of
    the next ones are kept until a verdict takes them.
    """

    def __init__(self, told: int, width: int) -> None:
        self.told = told
        self._width = width
        self._kept = bytearray()
        self._skipped = 0
        self._rows: npt.NDArray[np.uint16] | None = None

    def needless(self, start: int, rows: int) -> int:
        """Return how many of a pass's first rows, from start on, need not be told of."""
        known = self.told + len(self._kept) // size(1, self._width)
        return min(rows, max(0, known - start))

    def see(self, skipped: int, rows: npt.NDArray[np.uint16]) -> None:
        """Take note of the features [rows, width] of a pass, but for its needless first rows."""
        self._skipped, self._rows = skipped, rows

    def keep(self, rows: Sequence[int]) -> None:
        """Take note that these rows of the pass, which begin with all needless ones, are the text
        from its start on.
        """
        assert self._rows is not None
        new = [row - self._skipped for row in rows[self._skipped :]]
        self._kept += self._rows[new].tobytes()
        self._rows = None

    def tell(self, end: int) -> bytes:
        """Return the features of the text's tokens up to end that were not told before."""
        count = size(end - self.told, self._width)
        taken = bytes(self._kept[:count])
        assert len(taken) == count
        del self._kept[:count]
        self.told = end
        return taken

    def forget(self) -> None:
        """Start anew with what was not told: the text will be read again."""
        self._kept.clear()


def forward(model: TargetModel, segments: Sequence[Segment], sessions: Sequence[Session]) -> Logits:
    """Return a pass's logits; sessions that ask for features see those of their segments' rows."""
    if all(session.features is None for session in sessions):
        return model.forward(segments)
    asked: list[int] = []
    seeing: list[tuple[FeatureLog, int, int]] = []
    end = 0
    for segment, session in zip(segments, sessions, strict=True):
        begin, end = end, end + len(segment.tokens)
        if session.features is not None:
            skipped = session.features.needless(segment.start, end - begin)
            asked += range(begin + skipped, end)
            seeing.append((session.features, skipped, end - begin - skipped))
    # Only of such a model can a session have features: engine.open.
    logits, features = cast(FeatureModel, model).forward_fused(segments, asked)
    first = 0
    for log, skipped, rows in seeing:
        log.see(skipped, features[first : first + rows])
        first += rows
    return logits
