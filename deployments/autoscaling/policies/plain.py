"""Whether plain decoding is fast enough, and no dearer than drafts: then these are worth nothing.

A token that comes sooner than it is wanted has no value. Drafts have it where tokens come too late
without, or where sessions that end sooner need fewer verifiers than drafters cost.
"""

from __future__ import annotations

from typing import NamedTuple

from deployments.autoscaling.policies.demand import DemandConfig, verifiers_needed
from deployments.autoscaling.signals import Signals, VerifierSignal


class PlainDecoding(NamedTuple):
    """What decoding without drafts would be: seconds per token of a session, and verifiers.

    How many of these is not known (None) while some are starting.
    """

    token_s: float
    verifiers: int | None


def plain_decoding(signals: Signals, demand: DemandConfig) -> PlainDecoding | None:
    """Return what plain decoding would be; None while it is not known.

    A token takes a pass. Where there are drafters now, sessions would last longer by as much as
    their tokens would: what they reserve and how many wait rises so.
    """
    pool = signals.verifiers
    rounds_s = sum(one.rounds_s for one in pool.replicas)
    passes_s = sum(one.pass_s * one.rounds_s for one in pool.replicas)
    if not passes_s:
        return None
    token_s, longer = passes_s / rounds_s, 1.0
    if signals.drafters.target:
        tokens_s = rounds_s + sum(one.kept_s for one in pool.replicas)
        sessions = sum(one.sessions for one in pool.replicas)
        longer = max(1.0, token_s * tokens_s / sessions) if sessions else 1.0
    grown = pool._replace(replicas=tuple(_longer(one, longer) for one in pool.replicas))
    need = verifiers_needed(grown, demand)
    return PlainDecoding(token_s, None if need is None else need.replicas)


def _longer(one: VerifierSignal, factor: float) -> VerifierSignal:
    return one._replace(kv=factor * one.kv, waiting=factor * one.waiting)
