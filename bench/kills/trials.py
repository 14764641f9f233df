"""Trials: in which of a request's steps a target's replica is lost, how, and among how many."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import cycle, product
from random import Random
from typing import Any, NamedTuple

from deployments.config import ForedraftConfig
from foredraft_cli.prompts.held_out import TEMPERATURES

# A round takes some milliseconds: somewhere within one, that is in a draft, a pass or a verdict.
_ROUND_S = 0.03
# A stopped replica goes on after so many seconds.
STOPPED_S = 6.0


class Target(StrEnum):
    """The kind of target whose replicas are lost."""

    AUTOREGRESSIVE = "autoregressive"
    ANY_SUBSET = "any-subset"
    DIFFUSION = "diffusion"

    @property
    def deployment(self) -> str:
        """The deployment that serves it."""
        return "denoiser" if self is Target.DIFFUSION else "verifier"

    def model(self, config: ForedraftConfig) -> str:
        """Return its name in the API."""
        if self is Target.DIFFUSION and config.denoiser is not None:
            return config.denoiser.name
        return config.name

    def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a completion's body; an any-subset target fills a hole in the prompt."""
        if self is not Target.ANY_SUBSET:
            return body | {"ignore_eos": True}
        infill = {key: value for key, value in body.items() if key not in ("prompt", "max_tokens")}
        prompt, middle = body["prompt"], len(body["prompt"]) // 2
        parts = [prompt[:middle], {"mask": body["max_tokens"]}, prompt[middle:]]
        return infill | {"infill": parts}


class Loss(StrEnum):
    """How a replica is lost."""

    KILL = "kill"
    STOP = "stop"


_SIGNALS = {Loss.KILL: signal.SIGKILL, Loss.STOP: signal.SIGSTOP}


class Step(StrEnum):
    """Where a request is when its replica is lost."""

    OPENING = "opening"
    PREFILL = "prefill"
    FIRST = "first chunk"
    MIDDLE = "a round"
    LAST = "last rounds"


class Trial(NamedTuple):
    """One replica of some is lost: delay_s after a step of a request was seen."""

    replicas: int
    signal: signal.Signals
    step: Step
    temperature: float
    delay_s: float
    prompt: int


def trials(count: int, replicas: int, seed: int, losses: Iterable[Loss] = Loss) -> Iterator[Trial]:
    """Yield trials with so many replicas: every combination in turn, at random moments."""
    random = Random(seed)
    ways = product([_SIGNALS[loss] for loss in losses], Step, TEMPERATURES)
    for prompt, (number, step, temperature) in zip(range(count), cycle(ways), strict=False):
        yield Trial(replicas, number, step, temperature, random.uniform(0, _ROUND_S), prompt)
