"""What is counted: sums that reconcile with the report, documented names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from deployments.observability.metrics import INGRESS, SERVICES, Kind, of_request, of_stats
from foredraft.types import Committed, Origin, Proposal
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
ALL = [*INGRESS, *(metric for each in SERVICES.values() for metric in each.values())]


def tokens(kept: int) -> tuple[Committed, ...]:
    last = Origin.BONUS if kept else Origin.PLAIN
    return (*[Committed(1, Origin.KEPT)] * kept, Committed(2, last))


def report(mode: DecodingMode = TREES) -> SpeculationReport:
    stats = StatsAccumulator(mode)
    drafts, probe = Decision(8, "it pays", Cause.DRAFTS), Decision(4, "tried", Cause.PROBE)
    stats.add(tokens(0), RoundStats(0, 0, 0, decision=NO_DRAFT))
    stats.add(tokens(3), RoundStats(1, 8, 3, 6, verifier_led=True, decision=drafts))
    stats.add(tokens(1), RoundStats(2, 4, 1, 4, ran_ahead=True, hit=True, decision=probe))
    stats.add(tokens(0), RoundStats(3, 0, 0, ran_ahead=True, decision=drafts, verify_s=0.5))
    return stats.report(1.0, verifier_moves=2, drafter_attaches=1, drafter_refusal="no")


def counted(found: SpeculationReport) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    for name, value, labels in of_request(found):
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
    assert set(names) <= {metric.name for metric in INGRESS}


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
        assert f"| `{metric.name}` |" in documented
        for label in metric.labels:
            assert f"`{label}`" in documented
    for cause in Cause:
        assert f"| `{cause}` |" in documented
