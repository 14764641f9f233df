"""A drafter that plays back recorded candidates: what it proposes costs next to nothing to compute.

After a prefix of a recorded text it has the candidates that were recorded there; after any other
prefix, where no draft is ever verified, those of the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.proposals.lattice import BlockScores, Floats, Ints
from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash
from foredraft.errors import ConfigError
from foredraft.pacing.recording import Recording, prefixes


@dataclass(frozen=True, slots=True)
class RecordedScores:
    """BlockScores of every recorded prefix, for a number of mask slots; edge in half precision."""

    tokens: Ints
    log_q: Floats
    edge: Floats | None

    def scores(self, place: int, num_slots: int) -> BlockScores:
        """Return the scores of a prefix, of the first slots."""
        edge = None if self.edge is None else self.edge[place, :num_slots].astype(np.float32)
        return BlockScores(self.tokens[place, :num_slots], self.log_q[place, :num_slots], edge)


class PlaybackDrafter:
    """A DiffusionLM over recorded scores: places names a prefix's place in them by its hash.

    Slots of a block see each other. So scores were recorded for a few numbers of slots, and a block
    between two of them has the first slots of the longer one.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        places: Mapping[int, int],
        recorded: Mapping[int, RecordedScores],
    ) -> None:
        longest = min(capabilities.max_mask_slots, max(recorded))
        self.capabilities = replace(
            capabilities, max_mask_slots=longest, prefix_kv="exact", partial_blocks=False
        )
        self._places = places
        self._recorded = dict(sorted(recorded.items()))
        # By cache slot, the hash of the prefix that ends at each position.
        self._hashes: dict[int, list[int]] = {}

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft)."""
        return [self._scores(request) for request in requests]

    def _scores(self, request: BlockRequest) -> BlockScores:
        shared = request.slot if request.prefix_slot is None else request.prefix_slot
        hashes = self._hashes[request.slot] = self._hashes.get(shared, [])[: request.start]
        before = hashes[-1] if hashes else EMPTY_PREFIX_HASH
        for token in request.tokens:
            before = extend_hash(before, (token,))
            hashes.append(before)
        place = self._places.get(before, 0)
        slots = next(n for n in self._recorded if n >= request.num_slots)
        return self._recorded[slots].scores(place, request.num_slots)


def load_playback(capabilities: Capabilities, recording: Recording) -> PlaybackDrafter:
    """Return the drafter of a recording; raise ConfigError where that cannot be used."""
    if capabilities.features_hash:
        raise ConfigError("a drafter that reads features is not recorded", param="recording")
    places = {found: place for place, (found, _) in enumerate(prefixes(recording.texts()))}
    recorded = {n: _scores(recording, n) for n in recording.numbers_of_slots()}
    if any(len(scores.tokens) < 1 + max(places.values()) for scores in recorded.values()):
        raise recording.refuse_shape("drafts")
    return PlaybackDrafter(capabilities, places, recorded)


def _scores(recording: Recording, slots: int) -> RecordedScores:
    name = f"drafts.{slots}"
    tokens = recording.array(f"{name}.tokens", 3, np.int32)
    log_q = recording.array(f"{name}.log_q", 3, np.float32)
    edge = None
    if recording.has(f"{name}.edge"):
        edge = recording.array(f"{name}.edge", 4, np.float16)
        if edge.shape != (*tokens.shape, tokens.shape[2]):
            raise recording.refuse_shape(f"{name}.edge")
    if log_q.shape != tokens.shape or tokens.shape[1] != slots:
        raise recording.refuse_shape(name)
    recording.check_tokens(tokens)
    return RecordedScores(tokens.astype(np.int64), log_q, edge)
