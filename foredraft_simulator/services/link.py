"""Messages on their way: delayed, jittered, sent again where lost, never overtaking each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from pydantic import Field

from foredraft.strict import StrictModel

# A message comes so much after the one before it on the same stream: their order is kept.
_APART_S = 1e-8


class LinkConfig(StrictModel):
    """One way of a link between two services."""

    delay_ms: float = Field(
        default=0.15, ge=0, le=60_000, description="Delay of each message, in milliseconds."
    )
    jitter_ms: float = Field(
        default=0.0,
        ge=0,
        le=60_000,
        description="Most that is added to the delay at random, in milliseconds.",
    )
    loss: float = Field(
        default=0.0, ge=0, lt=1, description="Share of messages that are lost and sent again."
    )
    resend_ms: float = Field(
        default=200.0, ge=0, le=60_000, description="Time until a lost one is sent again."
    )


class Network:
    """All links of one kind; cut ones carry nothing until they are mended."""

    def __init__(self, config: LinkConfig, random: Random) -> None:
        self._config, self._random = config, random
        self._cut_until = 0.0
        self.messages = 0

    def cut(self, until: float) -> None:
        """Deliver nothing before a time."""
        self._cut_until = until

    def delay_s(self, now: float) -> float:
        """Return how long a message takes that is sent now."""
        config, random = self._config, self._random
        self.messages += 1
        seconds = config.delay_ms / 1e3
        if config.jitter_ms:
            seconds += random.random() * config.jitter_ms / 1e3
        while config.loss and random.random() < config.loss:
            seconds += config.resend_ms / 1e3
        return seconds + max(0.0, self._cut_until - now)


class Host:
    """A process that handles the messages to it one after the other, message_s each."""

    def __init__(self, message_s: float) -> None:
        self._message_s = message_s
        self._free_at = 0.0

    def handled_at(self, arrived: float) -> float:
        """Return when a message has been handled."""
        if self._message_s:
            arrived = self._free_at = max(arrived, self._free_at) + self._message_s
        return arrived


IDLE_HOST = Host(0.0)


class Channel:
    """One direction of one stream."""

    def __init__(self, network: Network, receiver: Host = IDLE_HOST) -> None:
        self._network, self._receiver = network, receiver
        self._loop = asyncio.get_running_loop()
        self._last = 0.0

    def due(self) -> float:
        """Return when a message that is sent now will have been handled."""
        now = self._loop.time()
        at = self._receiver.handled_at(now + self._network.delay_s(now))
        self._last = max(at, self._last + _APART_S)
        return self._last

    async def cross(self) -> None:
        """Wait until a message that is sent now has been handled."""
        await asyncio.sleep(self.due() - self._loop.time())

    def send(self, call: Callable[[], None]) -> None:
        """Do something once a message that is sent now has been handled."""
        self._loop.call_at(self.due(), call)
