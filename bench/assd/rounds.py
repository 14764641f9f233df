"""One round of an engine that serves nobody else."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import Round, Verdict
from foredraft.types import Base
from verifier_service.targets.engine import VerifierEngine


def decide(
    engine: VerifierEngine, handle: int, session_id: str, text: Sequence[int], steps: int = 1
) -> Verdict:
    """Return the verdict on a plain round of `steps` tokens after a text, however many passes its
    prefill takes.
    """
    base = Base(session_id, len(text), len(text), hash_prefix(text))
    engine.submit(handle, Round(base, plain_steps=steps))
    while True:
        for outcome in engine.step():
            assert isinstance(outcome.result, Verdict), outcome.result
            return outcome.result
