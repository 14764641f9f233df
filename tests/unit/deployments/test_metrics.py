"""What is counted: sums that reconcile with the report, documented names."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from deployments.ingress.stream.ended import Ended
from deployments.observability.metrics import INGRESS, SERVICES, Kind, of_request, of_stats
from deployments.observability.scrape import Scrape
from foredraft.types import Committed, FinishReason, Origin, Proposal
from orchestrator.length.controllers import Cause
from orchestrator.report import (
    NO_DRAFT,
    Decision,
    DecodingMode,
    RoundStats,
    SpeculationReport,
    StatsAccumulator,
)

OPERATING = Path(__file__).parents[3] / "docs/operating.md"
TREES = DecodingMode(proposal=Proposal.TREE)
CLUSTER = Path(__file__).parents[3] / "cluster"
ALERTS, DASHBOARD = CLUSTER / "prometheus/alerts.yaml", CLUSTER / "grafana/foredraft.json"
# What has no panel: the orchestrators count the same, or nearly so.
UNSEEN = {
    "denoiser_calls_total",
    "denoiser_drafts_total",
    "denoiser_pass_seconds_total",
    "denoiser_passes_total",
    "denoiser_rows_total",
    "denoiser_steps_total",
    "drafter_batches_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
    "spec_decode_num_ngram_drafts_total",
    "verifier_bought_tokens_total",
    "verifier_kept_tokens_total",
    "verifier_offered_tokens_total",
    "verifier_own_bought_tokens_total",
    "verifier_own_kept_tokens_total",
    "verifier_rounds_total",
}
ALL = [*INGRESS, *(metric for each in SERVICES.values() for metric in each.values())]


def tokens(kept: int) -> tuple[Committed, ...]:
    last = Origin.BONUS if kept else Origin.PLAIN
    return (*[Committed(1, Origin.KEPT)] * kept, Committed(2, last))


def report(mode: DecodingMode = TREES) -> SpeculationReport:
    stats = StatsAccumulator(mode)
    drafts, probe = Decision(8, "it pays", Cause.DRAFTS), Decision(4, "tried", Cause.PROBE)
    stats.add(tokens(0), RoundStats(0, 0, 0, decision=NO_DRAFT))
    stats.add(tokens(3), RoundStats(1, 8, 3, 6, 5, verifier_led=True, decision=drafts))
    stats.add(tokens(1), RoundStats(2, 4, 1, 4, 2, ran_ahead=True, hit=True, decision=probe))
    stats.add(tokens(0), RoundStats(3, 0, 0, ran_ahead=True, decision=drafts, verify_s=0.5))
    return stats.report(1.0, verifier_moves=2, drafter_attaches=1, drafter_refusal="no")


def counted(found: SpeculationReport) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    ended = Ended(found, FinishReason.STOP, 1.5, 0.5, 2, 3)
    for name, value, labels in of_request(10, ended):
        sums[name, *labels.values()] += value
    return sums


def test_a_request_is_counted_as_its_report_has_it() -> None:
    found = counted(report())
    names = Counter({name: 0 for name, *_ in found})
    for (name, *_), value in found.items():
        names[name] += value
    assert names["foredraft_rounds_total"] == 4
    assert names["foredraft_generation_tokens_total"] == 8
    assert names["foredraft_spec_decode_num_drafts_total"] == 2
    assert names["foredraft_spec_decode_num_draft_tokens_total"] == 12
    assert names["foredraft_spec_decode_num_bought_tokens_total"] == 10
    accepted = names["foredraft_spec_decode_num_accepted_tokens_total"]
    assert accepted == names["foredraft_spec_decode_num_accepted_tokens_per_pos_total"] == 4
    assert found["foredraft_spec_decode_num_accepted_tokens_per_pos_total", "0"] == 2
    assert found["foredraft_spec_decode_num_accepted_tokens_per_pos_total", "2"] == 1
    assert names["foredraft_verify_seconds_total"] == pytest.approx(0.5)
    assert names["foredraft_draft_length"] == 8
    assert names["foredraft_prompt_tokens_total"] == 10
    assert names["foredraft_prompt_tokens_cached_total"] == 3
    assert found["foredraft_request_success_total", "stop"] == 1
    assert names["foredraft_time_to_first_token_seconds"] == 0.5
    assert names["foredraft_request_time_per_output_token_seconds"] == pytest.approx(1 / 6)
    assert set(names) <= {metric.name for metric in INGRESS}


def test_positions_behind_a_rejected_token_are_unobserved() -> None:
    found = counted(report())
    name = "foredraft_draft_positions_total"
    positions = {key[1:]: n for key, n in found.items() if key[0] == name}
    # Of 5 levels 3 were accepted, of 2 one.
    assert positions == {
        ("0", "accepted"): 2,
        ("1", "accepted"): 1,
        ("1", "rejected"): 1,
        ("2", "accepted"): 1,
        ("3", "rejected"): 1,
        ("4", "unobserved"): 1,
    }


def test_a_session_that_failed_is_no_success_and_has_no_first_token() -> None:
    ended = Ended(report(), None, 1.5, None, 0, 0)
    names = {name for name, _, _ in of_request(10, ended)}
    assert "foredraft_requests_total" in names
    assert not any("success" in name or "first_token" in name for name in names)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: make packages")
def test_promtool_finds_nothing() -> None:
    scrape = Scrape({metric.name: metric for metric in ALL}.values())
    scrape.add(of_request(10, Ended(report(), FinishReason.STOP, 1.5, 0.5, 2, 3)))
    for package, metrics in SERVICES.items():
        scrape.add(of_stats(package, dict.fromkeys(metrics, 1.0), {}))
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape.text(), capture_output=True, check=False
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")
    rules = ["promtool", "check", "rules", str(ALERTS)]
    assert subprocess.run(rules, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_every_series_that_is_looked_at_is_exported(file: Path) -> None:
    exported = set()
    for metric in ALL:
        name = f"ray_{metric.name}"
        exported |= {f"{name}_bucket"} if metric.kind is Kind.HISTOGRAM else {name}
    looked_at = set(re.findall(r"\bray_\w+", file.read_text()))
    assert looked_at and looked_at <= exported
    if file is DASHBOARD:
        unseen = {name.removeprefix("ray_foredraft_") for name in exported - looked_at}
        assert unseen == UNSEEN


def test_rounds_have_one_reason_of_a_few() -> None:
    sums = counted(report()).items()
    found = {key[1:]: n for key, n in sums if key[0] == "foredraft_rounds_total"}
    assert found == {
        ("orchestrator", "no_drafter", "no"): 1,
        ("verifier", "drafts", "no"): 1,
        ("orchestrator", "probe", "hit"): 1,
        ("orchestrator", "no_draft", "miss"): 1,
    }
    plain = counted(report(DecodingMode()))
    assert plain["foredraft_rounds_total", "orchestrator", "off", "no"] == 1


def test_a_replicas_totals_become_steps_and_milliseconds_seconds() -> None:
    before = {"batches": 3.0, "queue_wait_ms": 1.0, "busy": 0.5}
    now = {"batches": 5.0, "queue_wait_ms": 2.0, "busy": 0.25}
    found = {name: value for name, value, _ in of_stats("drafter_service", now, before)}
    assert found["foredraft_drafter_batches_total"] == 2
    assert found["foredraft_drafter_queue_wait_seconds"] == pytest.approx(0.002)
    assert found["foredraft_engine_busy"] == 0.25


def test_names_follow_prometheus_and_are_documented() -> None:
    documented = OPERATING.read_text()
    assert len({metric.name for metric in INGRESS}) == len(INGRESS)
    for metric in ALL:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
        assert f"| `{metric.name}` |" in documented
        for label in metric.labels:
            assert f"`{label}`" in documented
    for cause in Cause:
        assert f"| `{cause}` |" in documented
