"""Whether plain decoding is fast enough, and no dearer than drafts: then these are worth nothing.

A token that comes sooner than it is wanted has no value. Drafts have it where tokens come too late
without, or where sessions that end sooner need fewer verifiers than drafters cost.
"""

from __future__ import annotations

from typing import NamedTuple

from deployments.autoscaling.policies.demand import DemandConfig, verifiers_needed
from deployments.autoscaling.signals import Signals, VerifierSignal


class PlainDecoding(NamedTuple):
    """What decoding without drafts would be: seconds per token of a session, and verifiers."""

    token_s: float
    verifiers: int


def plain_decoding(signals: Signals, demand: DemandConfig) -> PlainDecoding | None:
    """Return what plain decoding would be; None while it is not known.

    With drafters a token takes a pass, and sessions last longer by as much as their tokens do:
    what they reserve and how many wait rises so.
    """
    pool = signals.verifiers
    tokens_s = sum(one.rounds_s + one.kept_s for one in pool.replicas)
    sessions = sum(one.sessions for one in pool.replicas)
    if not pool.settled or not tokens_s or not sessions:
        return None
    now_s = sessions / tokens_s
    if not signals.drafters.target:
        need = verifiers_needed(pool, demand)
        return None if need is None else PlainDecoding(now_s, need.replicas)
    rounds_s = sum(one.rounds_s for one in pool.replicas)
    passes_s = sum(one.pass_s * one.rounds_s for one in pool.replicas)
    if not passes_s:
        return None
    token_s = passes_s / rounds_s
    longer = max(1.0, token_s / now_s)
    grown = pool._replace(replicas=tuple(_longer(one, longer) for one in pool.replicas))
    need = verifiers_needed(grown, demand)
    return None if need is None else PlainDecoding(token_s, need.replicas)


def _longer(one: VerifierSignal, factor: float) -> VerifierSignal:
    return one._replace(kv=factor * one.kv, waiting=factor * one.waiting)
