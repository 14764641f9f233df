"""The policy as Ray Serve calls it: through Serve's own wrapper, contexts and series."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.autoscaling_policy import _apply_app_level_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from deployments.autoscaling import serve_policy
from deployments.autoscaling.names import settings_key
from deployments.autoscaling.readings import rate, verifier_signal
from deployments.autoscaling.serve_policy import ScalingPolicy
from foredraft.errors import ConfigError

AT_ONCE = {"up_hold_s": 0, "down_hold_s": 0, "max_step": 8}
SETTINGS: dict[str, Any] = {
    "policy": "goodput",
    "interval_s": 1,
    "warm_up_s": 3,
    "drafter_steps": AT_ONCE,
    "verifier_steps": AT_ONCE,
}
IDS = {name: DeploymentID(name, "foredraft") for name in ("drafter", "verifier")}


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the policy has the cluster keep."""
    found: dict[str, bytes] = {}
    monkeypatch.setattr(serve_policy, "remember", found.__setitem__)
    return found


class Cluster:
    """Both deployments as Serve sees them; replicas share the load evenly, and report so."""

    def __init__(self, **settings: Any) -> None:
        self.policy = _apply_app_level_autoscaling_config(ScalingPolicy(**SETTINGS | settings))
        self.targets = {"drafter": 1, "verifier": 1}
        self.state: Mapping[Any, Any] = {}
        self.now = 1000.0
        self.drafter: dict[str, float] = {"busy": 0.3, "queue_wait_ms": 1.0}
        self.verifier: dict[str, float] = {
            "busy": 0.3,
            "kv_used": 10.0,
            "kv_wanted": 0.0,
            "kv_total": 100.0,
            "sessions": 2.0,
            "queue": 0.0,
        }
        self.rates = {"blocks": 20.0, "busy_s": 0.3, "rounds": 20.0, "kept": 40.0}

    def context(self, name: str) -> AutoscalingContext:
        replicas = [ReplicaID(f"{name}{i}", IDS[name]) for i in range(self.targets[name])]

        def series() -> dict[str, dict[ReplicaID, list[TimeStampedValue]]]:
            gauges = dict(self.drafter if name == "drafter" else self.verifier)
            if "busy" in gauges:
                # One load, whoever carries it.
                gauges["busy"] = min(1.0, gauges["busy"] / max(1, len(replicas)))
            counters = ("blocks", "busy_s") if name == "drafter" else ("rounds", "kept")
            found = {
                key: {each: [TimeStampedValue(self.now, value)] for each in replicas}
                for key, value in gauges.items()
            }
            for key in counters:
                steps = [
                    TimeStampedValue(
                        self.now + at, at * self.rates[key] / max(1, len(replicas)) + 500
                    )
                    for at in (-5, 0)
                ]
                found[key] = {each: steps for each in replicas}
            return found

        delays = {"upscale_delay_s": 0, "downscale_delay_s": 0, "downscale_to_zero_delay_s": 0}
        return AutoscalingContext(
            deployment_id=IDS[name],
            deployment_name=name,
            app_name="foredraft",
            current_num_replicas=len(replicas),
            target_num_replicas=len(replicas),
            running_replicas=replicas,
            total_num_requests=0.0,
            total_queued_requests=0.0,
            aggregated_metrics={},
            raw_metrics=series,
            capacity_adjusted_min_replicas=0 if name == "drafter" else 1,
            capacity_adjusted_max_replicas=4,
            policy_state=dict(self.state.get(IDS[name], {})),
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=self.now,
            config=AutoscalingConfig(
                min_replicas=0 if name == "drafter" else 1, max_replicas=4, **delays
            ),
        )

    def run(self, seconds: float) -> dict[str, int]:
        """Let time pass, a quarter of a second at a time; return the targets at its end."""
        for _ in range(int(4 * seconds)):
            self.now += 0.25
            contexts = {IDS[name]: self.context(name) for name in IDS}
            decisions, self.state = self.policy(contexts)
            for name, key in IDS.items():
                self.targets[name] = decisions.get(key, self.targets[name])
        return dict(self.targets)


def test_drafters_and_verifiers_follow_the_load_together() -> None:
    cluster = Cluster()
    assert cluster.run(6) == {"drafter": 1, "verifier": 1}
    cluster.verifier["busy"] = 1.2
    assert cluster.run(12)["verifier"] == 2
    cluster.verifier["busy"] = 0.1
    assert cluster.run(6)["verifier"] == 1
    # Nobody drafts when nobody decodes; Serve would never wake the pool again by itself.
    cluster.rates = dict.fromkeys(cluster.rates, 0.0)
    cluster.drafter["busy"] = 0.0
    assert cluster.run(6)["drafter"] == 0
    cluster.rates["rounds"] = 20.0
    assert cluster.run(6)["drafter"] == 1


def test_a_pool_with_a_young_replica_waits_for_it() -> None:
    cluster = Cluster(warm_up_s=10)
    cluster.verifier["busy"] = 4.0
    assert cluster.run(9) == {"drafter": 1, "verifier": 1}
    assert cluster.run(3)["verifier"] == 2
    assert cluster.run(8)["verifier"] == 2
    assert cluster.run(3)["verifier"] == 3


def test_missing_signals_leave_the_pools_as_they_are() -> None:
    cluster = Cluster()
    cluster.targets = {"drafter": 2, "verifier": 3}
    del cluster.verifier["kv_total"], cluster.drafter["busy"]
    assert cluster.run(8) == {"drafter": 2, "verifier": 3}


def test_a_dry_run_says_what_it_would_do(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(dry_run=True)
    cluster.verifier["busy"] = 1.0
    with caplog.at_level(logging.INFO, "ray.serve"):
        assert cluster.run(8) == {"drafter": 1, "verifier": 1}
    [line] = [r.getMessage() for r in caplog.records if "verifier: 1 -> 2" in r.getMessage()]
    assert "busy needs 1.43" in line and line.endswith("(dry run)")


def test_decisions_are_logged_once_and_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[tuple[str, str], float] = {}

    class Recorded:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
            self.name = name

        def set(self, value: float, tags: Mapping[str, str]) -> None:
            found[self.name, tags["pool"]] = value

    monkeypatch.setattr(serve_policy, "Gauge", Recorded)
    lines: list[str] = []
    monkeypatch.setattr(serve_policy.log, "info", lambda text, *values: lines.append(text % values))
    cluster = Cluster()
    cluster.run(6)
    # What was the decision, and that it is now the target.
    before = len(lines)
    cluster.run(6)
    assert len(lines) == before
    assert found["foredraft_autoscaling_target_replicas", "verifier"] == 1.0


def test_the_newest_decisions_are_kept(kept: dict[str, bytes]) -> None:
    cluster = Cluster()
    cluster.verifier["busy"] = 1.2
    cluster.run(12)
    found = json.loads(kept["foredraft:autoscaling:foredraft"])["newest"]
    assert found["verifier"]["target"] == 2 and "busy needs" in found["verifier"]["reason"]
    assert set(found) == {"drafter", "verifier"}


def test_changes_of_numbers_are_kept_in_order(kept: dict[str, bytes]) -> None:
    cluster = Cluster()
    cluster.verifier["busy"] = 1.2
    cluster.run(12)
    cluster.verifier["busy"] = 0.1
    cluster.run(6)
    found = json.loads(kept["foredraft:autoscaling:foredraft"])["changes"]
    verifiers = [(one["before"], one["target"]) for one in found if one["pool"] == "verifier"]
    assert verifiers == [(1, 2), (2, 1)]
    assert all(one["reason"] and one["at"] > 1000 for one in found)


def test_settings_that_the_cluster_keeps_are_followed(
    kept: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_policy, "remembered", kept.get)
    cluster = Cluster()
    cluster.policy = _apply_app_level_autoscaling_config(ScalingPolicy(kept=True))
    key = settings_key("foredraft")
    kept[key] = json.dumps(SETTINGS | {"policy": "static", "static": {"verifiers": 3}}).encode()
    assert cluster.run(6)["verifier"] == 3
    kept[key] = json.dumps(SETTINGS | {"policy": "static", "static": {"verifiers": 2}}).encode()
    assert cluster.run(6)["verifier"] == 2
    kept[key] = b'{"policy": "unknown"}'
    assert cluster.run(6)["verifier"] == 2


def test_an_error_never_leaves_it(caplog: pytest.LogCaptureFixture) -> None:
    policy = ScalingPolicy(**SETTINGS)
    assert policy({"nonsense": None}) == ({}, {})
    assert "nothing is scaled" in caplog.text


def test_an_application_without_both_pools_is_left_alone() -> None:
    cluster = Cluster()
    contexts = {IDS["drafter"]: cluster.context("drafter")}
    assert ScalingPolicy(**SETTINGS)(contexts) == ({}, {})


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="interval"):
        ScalingPolicy(interval=1)


def test_a_counter_that_began_anew_has_no_rate() -> None:
    assert rate([(0.0, 100.0), (5.0, 10.0)]) == 0.0
    assert rate([(0.0, 100.0)]) == 0.0
    assert rate([(0.0, 100.0), (5.0, 110.0)]) == 2.0


def test_the_mean_time_of_a_pass_is_read_where_passes_are_counted() -> None:
    series = {
        name: [(0.0, 0.0), (10.0, value)]
        for name, value in {"rounds": 50.0, "kept": 0.0, "passes": 20.0, "pass_s": 5.0}.items()
    } | {
        name: [(10.0, 1.0)]
        for name in ("busy", "kv_used", "kv_wanted", "kv_total", "sessions", "queue")
    }
    assert verifier_signal(series.__getitem__).pass_s == 0.25
    del series["pass_s"]
    assert verifier_signal(series.__getitem__).pass_s == 0.0
