"""What Foredraft counts: every metric by name, unit and meaning. Imports no Ray.

Names follow vLLM's where it has the same (its `vllm:` is our `foredraft_`), and Prometheus' units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from deployments.ingress.stream.ended import Ended
from orchestrator.report import SpeculationReport


class Kind(StrEnum):
    """A counter only rises, a gauge is what it is now, a histogram counts values by size."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric; labels are what Serve does not add by itself, buckets a histogram's bounds."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Sample(NamedTuple):
    """What is added to a counter or observed by a histogram, or a gauge's value."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"foredraft_{name}_total", Kind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"foredraft_{name}", Kind.GAUGE, meaning, labels)


def _seconds(name: str, meaning: str, first: float) -> Metric:
    buckets = tuple(round(first * step * 10**power, 6) for power in range(4) for step in (1, 2, 5))
    return Metric(f"foredraft_{name}_seconds", Kind.HISTOGRAM, meaning, (), buckets)


INGRESS = (
    _counter("requests", "Sessions that ended, for whatever reason."),
    _counter("request_success", "Of these, sessions that came to their end.", "finished_reason"),
    _seconds("time_to_first_token", "From a session's start to its first tokens.", 0.005),
    _seconds("request_time_per_output_token", "Mean time of a session's later tokens.", 0.0005),
    _seconds("e2e_request_latency", "From a session's start to its end.", 0.02),
    _counter("prompt_tokens", "Tokens of prompts that were read."),
    _counter("prompt_tokens_cached", "Of these, tokens that another session had read."),
    _counter("generation_tokens", "Committed tokens, by how they came about.", "origin"),
    _counter(
        "rounds",
        "Rounds, by who asked for the draft, why it was as long as it was, and whether the next "
        "one was requested ahead.",
        "led_by",
        "reason",
        "ahead",
    ),
    _counter("spec_decode_num_drafts", "Rounds with a draft."),
    _counter("spec_decode_num_ngram_drafts", "Of these, drafts of the text's own n-grams."),
    _counter("spec_decode_num_draft_tokens", "Draft tokens offered to the verifier."),
    _counter("spec_decode_num_bought_tokens", "Draft tokens that it verified."),
    _counter("spec_decode_num_accepted_tokens", "Draft tokens that were accepted."),
    _counter(
        "spec_decode_num_accepted_tokens_per_pos",
        "Drafts of which more than this many tokens were accepted.",
        "position",
    ),
    _counter(
        "draft_positions",
        "Levels of verified drafts by their place, the first being 0, and by what became of them: "
        "behind a rejected one they are unobserved.",
        "position",
        "outcome",
    ),
    _counter("draft_wait_seconds", "Time that rounds waited for their drafts."),
    _counter("verify_seconds", "Time that rounds waited for their verdicts."),
    _counter("verifier_compute_seconds", "Of this, time within forward passes."),
    _counter("verifier_moves", "Moves of a session to another verifier."),
    _counter("drafter_attaches", "Drafters that sessions were attached to."),
    _counter(
        "drafter_refusals",
        "Requests that were decoded plainly because no drafter fits the target or the request.",
    ),
    _gauge("draft_length", "The draft length last chosen, 0 for plain decoding."),
    _gauge("acceptance_rate", "Share of the last observed draft positions that was accepted."),
    _gauge("acceptance_alarm", "-1 where that share is below its band, 1 above, else 0."),
    _gauge("canary_share", "Share of the sessions that a canary drafts for."),
    _gauge("canary_outcome", "1 where a canary was promoted, -1 where it was rolled back, else 0."),
    _gauge("canary_sessions", "Sessions of a trial, stable or canary.", "arm"),
    _gauge("canary_accepted_per_round", "Their accepted tokens per round.", "arm"),
    _gauge("canary_tokens_per_second", "Their tokens per second.", "arm"),
)

# By the key of a service's stats().
_ENGINE = {
    "busy": _gauge("engine_busy", "Share of the last seconds in which the engine worked."),
    "queue": _gauge("num_requests_waiting", "Rounds or proposals that wait for the engine."),
    "sessions": _gauge("num_sessions", "Open sessions."),
}
_VERIFIER = {
    "kv_used": _gauge("kv_cache_used_tokens", "KV that sessions have reserved."),
    "kv_wanted": _gauge("kv_cache_wanted_tokens", "KV that a session which waits for it needs."),
    "kv_total": _gauge("kv_cache_tokens", "KV there is."),
    "kv_shared": _counter("prefix_cache_hits", "Tokens not read, because another session had."),
    "preempted": _counter("num_preemptions", "Sessions that lost their KV to another one."),
    "rounds": _counter("verifier_rounds", "Rounds that were decided."),
    "corrupted": _counter("corrupted_rounds", "Rounds whose logits were not finite."),
    "passes": _counter("verifier_passes", "Forward passes."),
    "pass_s": _counter("verifier_pass_seconds", "Time in forward passes."),
    "rows": _counter("verifier_rows", "Rows of forward passes."),
    "offered": _counter("verifier_offered_tokens", "Draft tokens of the rounds decided."),
    "bought": _counter("verifier_bought_tokens", "Of these, tokens that were verified."),
    "own_bought": _counter(
        "verifier_own_bought_tokens", "Verified tokens of drafts that the target made itself."
    ),
    "own_kept": _counter("verifier_own_kept_tokens", "Of these, tokens that were accepted."),
    "kept": _counter("verifier_kept_tokens", "Of these, tokens that were accepted."),
    "price_pass_s": _gauge("price_pass_seconds", "A pass over one row of each session."),
    "price_row_s": _gauge("price_row_seconds", "What one more row adds to a pass."),
    "price_draft_s": _gauge("price_draft_seconds", "What passes lose to one drafted round."),
}
_DRAFTER = {
    "queue_wait_ms": _gauge("drafter_queue_wait_seconds", "Mean wait of the last proposals."),
    "batch_size": _gauge("drafter_batch_size", "Mean number of proposals in the last batches."),
    "batches": _counter("drafter_batches", "Batches."),
    "blocks": _counter("drafter_blocks", "Proposals answered with a draft."),
    "blocks_ahead": _counter("drafter_blocks_ahead", "Drafts of predicted outcomes."),
    "ahead_dropped": _counter(
        "drafter_ahead_dropped", "Requests for predicted outcomes that others' proposals displaced."
    ),
    "evictions": _counter("drafter_evictions", "Cached prefixes that gave way to others."),
}
_DENOISER = {
    name: _VERIFIER[name] for name in ("kv_used", "kv_total", "kv_shared", "corrupted")
} | {
    "passes": _counter("denoiser_passes", "Forward passes of denoisers."),
    "pass_s": _counter("denoiser_pass_seconds", "Time in them."),
    "rows": _counter("denoiser_rows", "Rows of them."),
    "calls": _counter("denoiser_calls", "Sessions that had a part in them, summed."),
    "steps": _counter("denoiser_steps", "Steps; each beyond the calls left an accepted draft."),
    "drafts": _counter("denoiser_drafts", "Drafted states that were evaluated."),
}
SERVICES = {
    "denoiser_service": _ENGINE | _DENOISER,
    "verifier_service": _ENGINE | _VERIFIER,
    "drafter_service": _ENGINE | _DRAFTER,
}


def of_request(prompt_tokens: int, ended: Ended) -> Iterator[Sample]:
    """Yield what the ingress counts of a session that ended."""
    yield Sample("foredraft_requests_total", 1)
    if ended.finish is not None:
        reason = {"finished_reason": str(ended.finish)}
        yield Sample("foredraft_request_success_total", 1, reason)
    yield Sample("foredraft_e2e_request_latency_seconds", ended.seconds)
    if ended.first_token_s is not None:
        yield Sample("foredraft_prompt_tokens_total", prompt_tokens)
        yield Sample("foredraft_prompt_tokens_cached_total", ended.cached_tokens)
        yield Sample("foredraft_time_to_first_token_seconds", ended.first_token_s)
        if (later := ended.tokens - ended.first_tokens) > 0:
            each_s = (ended.seconds - ended.first_token_s) / later
            yield Sample("foredraft_request_time_per_output_token_seconds", each_s)
    yield from _of_report(ended.report)


def _of_report(report: SpeculationReport) -> Iterator[Sample]:
    for origin, count in report.origins.items():
        yield Sample("foredraft_generation_tokens_total", count, {"origin": str(origin)})
    for (verifier_led, reason, ahead), count in report.rounds_by.items():
        led_by = "verifier" if verifier_led else "orchestrator"
        labels = {"led_by": led_by, "reason": reason, "ahead": str(ahead)}
        yield Sample("foredraft_rounds_total", count, labels)
    for name, value in (
        ("spec_decode_num_drafts", report.draft_rounds),
        ("spec_decode_num_ngram_drafts", report.ngram_rounds),
        ("spec_decode_num_draft_tokens", report.num_draft_tokens),
        ("spec_decode_num_bought_tokens", report.num_bought_tokens),
        ("spec_decode_num_accepted_tokens", report.num_accepted),
        ("draft_wait_seconds", report.drafting_s),
        ("verify_seconds", report.verifying_s),
        ("verifier_compute_seconds", report.computing_s),
        ("verifier_moves", report.verifier_moves),
        ("drafter_attaches", report.drafter_attaches),
        ("drafter_refusals", report.drafter_refusal is not None),
    ):
        yield Sample(f"foredraft_{name}_total", value)
    reached = 0
    for accepted in range(max(report.accepted_histogram, default=0), 0, -1):
        reached += report.accepted_histogram.get(accepted, 0)
        position = {"position": str(accepted - 1)}
        yield Sample("foredraft_spec_decode_num_accepted_tokens_per_pos_total", reached, position)
    for (place, outcome), count in places(report).items():
        at = {"position": str(place), "outcome": outcome}
        yield Sample("foredraft_draft_positions_total", count, at)
    if report.trace:
        yield Sample("foredraft_draft_length", report.trace[-1].k)


def places(report: SpeculationReport) -> Mapping[tuple[int, str], int]:
    """Return how many verified draft tokens were accepted, rejected or unobserved at each place.

    A tree counts as one token at each of its levels.
    """
    found: Counter[tuple[int, str]] = Counter()
    for (accepted, depth), count in report.depths.items():
        for position in range(depth):
            after = "rejected" if position == accepted else "unobserved"
            found[position, "accepted" if position < accepted else after] += count
    return found


def of_stats(
    package: str, stats: Mapping[str, float], before: Mapping[str, float]
) -> Iterator[Sample]:
    """Yield what a service's replica exports; before is what its stats were the last time."""
    for key, metric in SERVICES[package].items():
        value = stats.get(key, 0.0)
        if metric.kind is Kind.COUNTER:
            value -= before.get(key, 0.0)
        yield Sample(metric.name, 1e-3 * value if key.endswith("_ms") else value)
