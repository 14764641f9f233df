"""A file after its canary's trial: the drafter is the canary's, or the canary is gone."""

from __future__ import annotations

import hashlib
import json

from deployments.canary.comparison import Outcome
from deployments.canary.trial import Board, verdict_of
from deployments.config import ServeFile
from deployments.pools import DrafterPool


def trial_key(application: str, pool: DrafterPool) -> str:
    """Return the name of a trial: the same drafters, compared in the same way, are the same one."""
    assert pool.canary is not None
    values = [each.model_dump(mode="json") for each in (pool.service, pool.canary)]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return f"{newest_key(application)}:{digest}"


def newest_key(application: str) -> str:
    """Return the name under which the cluster keeps how an application's newest trial stands."""
    return f"foredraft:canary:{application}"


def settled(file: ServeFile, board: Board) -> ServeFile:
    """Return the file as the verdict on its canary has it; itself where there is none."""
    entry = file.application
    pool = entry.args.drafter
    if pool.canary is None:
        return file
    verdict = verdict_of(board, trial_key(entry.name, pool))
    if verdict is None:
        return file
    service = pool.canary.service if verdict.outcome is Outcome.PROMOTED else pool.service
    pool = pool.model_copy(update={"canary": None, "service": service})
    entry = entry.model_copy(update={"args": entry.args.model_copy(update={"drafter": pool})})
    return file.model_copy(update={"applications": [entry]})
