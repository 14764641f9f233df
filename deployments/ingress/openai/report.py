"""The speculation report of a request, in vLLM's field names where the meaning is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.report import RoundTrace, SpeculationReport


def speculation(report: SpeculationReport) -> dict[str, Any]:
    """Return the report as JSON values, but for its trace.

    mean_acceptance_length includes the bonus or correction.
    """
    return {
        "acceptance": report.mode.acceptance,
        "proposal": report.mode.proposal,
        "ngram": report.mode.ngram,
        "self_draft": report.mode.self_draft,
        "num_rounds": report.rounds,
        "num_target_passes": report.target_passes,
        "num_spec_steps": report.draft_rounds,
        "num_ngram_steps": report.ngram_rounds,
        "num_draft_tokens": report.num_draft_tokens,
        "num_bought_tokens": report.num_bought_tokens,
        "num_accepted_draft_tokens": report.num_accepted,
        "mean_acceptance_length": report.mat + 1 if report.draft_rounds else 0.0,
        "draft_acceptance_rate": report.acceptance_rate,
        "mean_draft_length": report.mean_k,
        "acceptance_histogram": _counts(report.accepted_histogram),
        "origins": {str(origin): count for origin, count in report.origins.items()},
        "run_ahead_rounds": report.run_ahead_rounds,
        "run_ahead_hits": report.run_ahead_hits,
        "run_ahead_hit_rate": report.run_ahead_hit_rate,
        "verifier_moves": report.verifier_moves,
        "drafter_attaches": report.drafter_attaches,
        "drafter_refusal": report.drafter_refusal,
        "drafting_s": report.drafting_s,
        "verifying_s": report.verifying_s,
        "computing_s": report.computing_s,
        "waiting_s": report.waiting_s,
        "trace": report.trace,
    }


def _counts(histogram: Mapping[int, int]) -> list[int]:
    """Return how many drafts had 0, 1, 2, ... tokens accepted."""
    return [histogram.get(n, 0) for n in range(max(histogram, default=-1) + 1)]


def trace(rounds: Sequence[RoundTrace]) -> list[dict[str, Any]]:
    """Return a report's trace as JSON values."""
    return [one._asdict() | {"price": one.price._asdict()} for one in rounds]
