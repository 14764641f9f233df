"""A drafter whose forward passes take the time of a modelled one (foredraft.pacing)."""

from __future__ import annotations

from collections.abc import Sequence

from drafter_service.config import DrafterConfig
from drafter_service.models.playback import load_playback
from drafter_service.models.port import BlockRequest, Capabilities, DiffusionLM
from drafter_service.proposals.lattice import BlockScores
from foredraft.model_files import weights_hash
from foredraft.pacing.config import Work
from foredraft.pacing.pacer import Pacer
from foredraft.pacing.recording import DRAFTER, Recording


class PacedDrafter:
    """A DiffusionLM around another."""

    def __init__(self, model: DiffusionLM, pacer: Pacer) -> None:
        self._model, self._pacer = model, pacer

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""
        return self._model.capabilities

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the model's candidates once a pass of these rows would have ended."""
        rows = sum(len(request.tokens) + request.num_slots for request in requests)
        # Blocks after one prefix, for several outcomes, read it once.
        context = sum(request.start for request in requests if request.prefix_slot is None)
        work = Work(rows, context, len(requests))
        # A draft's first pass may read its prefix, too; only chunks before that are prefill.
        drafts = any(request.num_slots for request in requests)
        with self._pacer.passing(work, work if drafts else Work(0, 0, 0)):
            return self._model.draft(requests)

    def gauges(self) -> dict[str, float]:
        """Return the pacer's."""
        return self._pacer.gauges()


def as_configured(config: DrafterConfig, model: DiffusionLM) -> DiffusionLM:
    """Return the model, or its recording, paced if that is configured.

    Raise ConfigError for a recording that cannot be used.
    """
    if config.recording is not None:
        c = model.capabilities
        recording = Recording(
            config.recording, DRAFTER, c.name, weights_hash(config.model), c.vocab_size
        )
        model = load_playback(c, recording)
    return model if config.pace is None else PacedDrafter(model, Pacer(config.pace))
