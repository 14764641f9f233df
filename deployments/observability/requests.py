"""What the ingress counts, once for each session, at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from deployments.ingress.stream.ended import Ended
from deployments.observability.acceptance import AcceptanceWatch, Alarm, BandConfig
from deployments.observability.metrics import Sample, of_request

log = logging.getLogger(__name__)

_MEANINGS = {
    Alarm.BELOW: "below its band: the drafter does not fit the target, or these texts",
    Alarm.ABOVE: "above its band: texts may repeat themselves",
    Alarm.WITHIN: "within its band again",
}


class Sink(Protocol):
    """Where metrics go."""

    def add(self, samples: Sequence[Sample]) -> None:
        """Take samples."""


Counting = Callable[[int, Ended], None]


def both(one: Counting, other: Counting) -> Counting:
    """Return what counts a session twice."""

    def ended(prompt_tokens: int, ended: Ended) -> None:
        one(prompt_tokens, ended)
        other(prompt_tokens, ended)

    return ended


class RequestMetrics:
    """Counts sessions in every sink, and raises the alarm of the acceptance."""

    def __init__(self, band: BandConfig, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._band = band
        self._watch = AcceptanceWatch(band)
        self._alarm = Alarm.WITHIN

    def watch(self, band: BandConfig) -> None:
        """Watch another band from now on, if it is another."""
        if band != self._band:
            self._band, self._watch = band, AcceptanceWatch(band)

    def ended(self, prompt_tokens: int, ended: Ended) -> None:
        """Count a session that ended."""
        self._watch.add(ended.report)
        rate, alarm = self._watch.rate, self._watch.alarm
        if alarm is not self._alarm:
            self._alarm = alarm
            level = logging.INFO if alarm is Alarm.WITHIN else logging.WARNING
            log.log(level, "acceptance of %.3f is %s", rate, _MEANINGS[alarm])
        samples = [
            *of_request(prompt_tokens, ended),
            Sample("foredraft_acceptance_rate", rate),
            Sample("foredraft_acceptance_alarm", float(alarm)),
        ]
        for sink in self._sinks:
            sink.add(samples)
