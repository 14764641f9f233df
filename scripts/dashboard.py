"""Prints the Grafana dashboard: python scripts/dashboard.py > cluster/grafana/foredraft.json

Series are those of Ray's endpoints, which put `ray_` before a name and Serve's labels beside it.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

_WIDTH, _HEIGHT = 8, 7
_RATE = "[$__rate_interval]"
_OF = '{application="$application"}'


class Panel(NamedTuple):
    """A time series panel: expressions by their legends."""

    title: str
    unit: str
    lines: dict[str, str]
    told: str = ""


def rate(name: str, by: str = "") -> str:
    """Return a counter's rate, summed, by a label if there is one."""
    grouped = f" by ({by})" if by else ""
    return f"sum(rate(ray_foredraft_{name}_total{_OF}{_RATE})){grouped}"


def share(part: str, whole: str) -> str:
    """Return the ratio of two counters' rates."""
    return f"{rate(part)} / {rate(whole)}"


def gauge(name: str, how: str = "sum", by: str = "") -> str:
    """Return a gauge over all replicas."""
    grouped = f" by ({by})" if by else ""
    return f"{how}(ray_foredraft_{name}{_OF}){grouped}"


def quantiles(name: str) -> dict[str, str]:
    """Return a histogram's median and 99th percentile."""
    buckets = f"sum(rate(ray_foredraft_{name}_seconds_bucket{_OF}{_RATE})) by (le)"
    return {f"p{q * 100:g}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.99)}


def _at(outcomes: str) -> str:
    series = "ray_foredraft_draft_positions_total"
    chosen = f'{{application="$application", outcome=~"{outcomes}"}}'
    return f"sum(rate({series}{chosen}{_RATE})) by (position)"


ROWS = {
    "Requests": [
        Panel(
            "Requests",
            "reqps",
            {
                "{{finished_reason}}": rate("request_success", "finished_reason"),
                "all": rate("requests"),
            },
            "What is left between both failed, or its client left.",
        ),
        Panel("Time to first token", "s", quantiles("time_to_first_token")),
        Panel("Time of each later token", "s", quantiles("request_time_per_output_token")),
        Panel("Whole requests", "s", quantiles("e2e_request_latency")),
        Panel(
            "Tokens",
            "short",
            {
                "prompt": rate("prompt_tokens"),
                "of it cached": rate("prompt_tokens_cached"),
                "generated": rate("generation_tokens"),
            },
        ),
        Panel("Sessions", "short", {"{{deployment}}": gauge("num_sessions", by="deployment")}),
    ],
    "Speculation": [
        Panel(
            "Generated tokens by origin",
            "short",
            {"{{origin}}": rate("generation_tokens", "origin")},
        ),
        Panel(
            "Draft tokens",
            "short",
            {
                "offered": rate("spec_decode_num_draft_tokens"),
                "verified": rate("spec_decode_num_bought_tokens"),
                "accepted": rate("spec_decode_num_accepted_tokens"),
            },
            "Offered but not verified: rows that were not worth their price.",
        ),
        Panel(
            "Accepted tokens of a draft",
            "short",
            {"mean": share("spec_decode_num_accepted_tokens", "spec_decode_num_drafts")},
        ),
        Panel(
            "Acceptance by position",
            "percentunit",
            {"{{position}}": f"{_at('accepted')} / {_at('accepted|rejected')}"},
            "Of the positions observed: those behind a rejected one are not.",
        ),
        Panel(
            "Acceptance and its alarm",
            "short",
            {
                "share of observed positions": gauge("acceptance_rate", "avg"),
                "alarm": gauge("acceptance_alarm", "max"),
                "lowest alarm": gauge("acceptance_alarm", "min"),
            },
            "-1: a drafter that does not fit; 1: texts that repeat themselves.",
        ),
        Panel(
            "Rounds by reason of their draft length",
            "short",
            {"{{reason}}": rate("rounds", "reason")},
        ),
        Panel(
            "Rounds by the next draft requested ahead",
            "short",
            {"{{ahead}}": rate("rounds", "ahead")},
        ),
        Panel("Draft length last chosen", "short", {"mean": gauge("draft_length", "avg")}),
        Panel(
            "Where a round's time goes",
            "percentunit",
            {
                "waiting for drafts": rate("draft_wait_seconds"),
                "waiting for verdicts": rate("verify_seconds"),
                "of it passes": rate("verifier_compute_seconds"),
            },
            "Seconds a second, over all sessions.",
        ),
        Panel(
            "Losses",
            "short",
            {
                "moves between verifiers": rate("verifier_moves"),
                "drafters attached": rate("drafter_attaches"),
                "drafters refused": rate("drafter_refusals"),
                "rounds not finite": rate("corrupted_rounds"),
            },
        ),
    ],
    "Engines": [
        Panel("Busy", "percentunit", {"{{deployment}}": gauge("engine_busy", "avg", "deployment")}),
        Panel(
            "Waiting", "short", {"{{deployment}}": gauge("num_requests_waiting", by="deployment")}
        ),
        Panel(
            "KV in use",
            "percentunit",
            {
                "used": f"{gauge('kv_cache_used_tokens')} / {gauge('kv_cache_tokens')}",
                "waited for": f"{gauge('kv_cache_wanted_tokens')} / {gauge('kv_cache_tokens')}",
            },
        ),
        Panel(
            "KV shared and lost",
            "short",
            {
                "tokens read before": rate("prefix_cache_hits"),
                "sessions preempted": rate("num_preemptions"),
            },
        ),
        Panel(
            "A verifier's pass",
            "s",
            {
                "measured": share("verifier_pass_seconds", "verifier_passes"),
                "price of a pass": gauge("price_pass_seconds", "avg"),
                "price of a row": gauge("price_row_seconds", "avg"),
                "price of a draft": gauge("price_draft_seconds", "avg"),
            },
        ),
        Panel("Rows of a pass", "short", {"rows": share("verifier_rows", "verifier_passes")}),
        Panel(
            "Drafts",
            "short",
            {
                "drafts": rate("drafter_blocks"),
                "made ahead": rate("drafter_blocks_ahead"),
                "ahead, displaced": rate("drafter_ahead_dropped"),
                "cached prefixes evicted": rate("drafter_evictions"),
            },
        ),
        Panel("Drafter's batches", "short", {"proposals": gauge("drafter_batch_size", "avg")}),
        Panel(
            "Wait for a drafter's batch", "s", {"mean": gauge("drafter_queue_wait_seconds", "avg")}
        ),
    ],
    "Canary": [
        Panel(
            "Accepted tokens per round",
            "short",
            {"{{arm}}": gauge("canary_accepted_per_round", "avg", "arm")},
        ),
        Panel(
            "Tokens per second of a session",
            "short",
            {"{{arm}}": gauge("canary_tokens_per_second", "avg", "arm")},
        ),
        Panel(
            "Trial",
            "short",
            {
                "share": gauge("canary_share", "max"),
                "promoted": gauge("canary_outcome", "max"),
                "rolled back": "-" + gauge("canary_outcome", "min"),
                "sessions, {{arm}}": gauge("canary_sessions", "max", "arm"),
            },
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for at, panel in enumerate(row):
            place = {"x": at % 3 * _WIDTH, "y": y + at // 3 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(panel, place))
        y += -(-len(row) // 3) * _HEIGHT
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "title": "Foredraft",
        "uid": "foredraft",
        "schemaVersion": 41,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource(), _application()]},
        "panels": panels,
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend}
        for at, (legend, expression) in enumerate(panel.lines.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.told,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _application() -> dict[str, Any]:
    query = "label_values(ray_foredraft_num_sessions, application)"
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {"name": "application", "type": "query", "query": query, "datasource": source}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1) + "\n")
