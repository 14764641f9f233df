"""Several ingress replicas in one trial: shared sums, one verdict, kept for good."""

from __future__ import annotations

import random
from pathlib import Path

from deployments.canary.arms import CANARY, STABLE, OneArm, TwoArms
from deployments.canary.comparison import ComparisonConfig, Outcome
from deployments.canary.config import CanaryConfig
from deployments.canary.outcome import settled, trial_key
from deployments.canary.trial import Trial, verdict_of
from deployments.config import EMBEDDED_FILE, ServeFile, read
from drafter_service.config import DrafterConfig
from foredraft.types import Origin, Proposal
from orchestrator.report import DecodingMode, SpeculationReport, StatsAccumulator
from tests.support.orchestrator.peers import ScriptedDrafter

CONFIG = CanaryConfig(
    share=0.5,
    service=DrafterConfig(model=Path("/other/drafter")),
    comparison=ComparisonConfig(min_sessions=10, max_sessions=40),
    start_s=30,
)


class Memory:
    """The cluster's, here."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, name: str, value: bytes) -> None:
        self.kept[name] = value

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def claim(self, name: str, value: bytes = b"") -> bool:
        return self.kept.setdefault(name, value) is value and self.kept[name] is value

    def below(self, prefix: str) -> list[bytes]:
        return [value for name, value in self.kept.items() if name.startswith(prefix)]


def report(accepted: int, proposal: Proposal | None = Proposal.TREE) -> SpeculationReport:
    made = StatsAccumulator(DecodingMode(proposal=proposal))
    made.rounds = 10
    made.origins.update({Origin.KEPT: accepted, Origin.CORRECTION: 10})
    return made.report(1.0, 0, 0)


def feed(trial: Trial, arm: str, accepted: int, sessions: int) -> None:
    for index in range(sessions):
        trial.ended(arm, report(accepted + index % 2), 1.0)


def test_two_replicas_judge_what_both_saw_once() -> None:
    memory = Memory()
    one, two = (Trial("t", CONFIG, memory, name) for name in ("one", "two"))
    assert one.share == 0.0
    assert one.step(0.0, running=True) is None and two.step(0.0, running=True) is None
    assert one.share == two.share == 0.5
    for trial in (one, two):
        feed(trial, STABLE, 30, 6)
        feed(trial, CANARY, 2, 6)
    assert one.step(1.0, running=True) is None
    verdict = two.step(1.0, running=True)
    assert verdict is not None and verdict.outcome is Outcome.ROLLED_BACK
    assert "after 12 sessions beside 12" in verdict.reason
    assert two.share == 0.0
    assert one.step(2.0, running=True) is None
    assert one.share == 0.0 and one.verdict == verdict
    late = Trial("t", CONFIG, memory, "three")
    assert late.step(0.0, running=True) is None
    assert late.verdict == verdict and late.share == 0.0
    assert late.described()["outcome"] == "rolled back"
    values = {sample.name: sample.value for sample in late.samples()}
    assert values["foredraft_canary_outcome"] == -1.0


def test_one_as_good_is_promoted() -> None:
    memory = Memory()
    trial = Trial("t", CONFIG, memory, "one")
    trial.step(0.0, running=True)
    feed(trial, STABLE, 30, 10)
    feed(trial, CANARY, 30, 10)
    verdict = trial.step(1.0, running=True)
    assert verdict is not None and verdict.outcome is Outcome.PROMOTED
    assert trial.share == 0.5


def test_sessions_before_it_runs_and_those_without_drafts_do_not_count() -> None:
    trial = Trial("t", CONFIG, Memory(), "one")
    feed(trial, STABLE, 30, 20)
    trial.step(0.0, running=True)
    for _ in range(20):
        trial.ended(STABLE, report(0, proposal=None), 1.0)
    feed(trial, CANARY, 30, 20)
    assert trial.step(1.0, running=True) is None
    assert trial.described()["arms"][STABLE]["sessions"] == 0


def test_one_that_never_runs_is_rolled_back() -> None:
    trial = Trial("t", CONFIG, Memory(), "one")
    assert trial.step(100.0, running=False) is None
    assert trial.share == 0.0
    verdict = trial.step(131.0, running=False)
    assert verdict is not None and verdict.reason == "no replica of it ran within 31 s"


async def test_arms_take_their_shares_and_a_canarys_sessions_move_once_it_has_none() -> None:
    noise = random.Random(1)
    stable, canary = ScriptedDrafter(), ScriptedDrafter()
    memory = Memory()
    trial = Trial("t", CONFIG, memory, "one")
    arms = TwoArms(stable, canary, trial, noise.random)
    assert {arms.choose().name for _ in range(50)} == {STABLE}
    trial.step(0.0, running=True)
    names = [arms.choose().name for _ in range(400)]
    assert 150 < names.count(CANARY) < 250
    [there] = {arm.drafters for arm in (arms.choose() for _ in range(50)) if arm.name == CANARY}
    assert {arms.choose().drafters for _ in range(50)} == {stable, there}
    trial.end()
    assert {arms.choose().name for _ in range(50)} == {STABLE}
    assert OneArm(stable).choose().drafters is stable


def with_canary() -> ServeFile:
    file = read(EMBEDDED_FILE)
    [entry] = file.applications
    drafter = entry.args.drafter.model_copy(update={"canary": CONFIG})
    args = entry.args.model_copy(update={"drafter": drafter})
    return file.model_copy(update={"applications": [entry.model_copy(update={"args": args})]})


def test_a_file_that_is_deployed_again_follows_the_verdict() -> None:
    memory, file = Memory(), with_canary()
    pool = file.application.args.drafter
    assert settled(file, memory) is file
    key = trial_key("foredraft", pool)
    memory.claim(f"{key}:verdict", b'{"outcome": "promoted", "reason": "better"}')
    found = settled(file, memory).application.args.drafter
    assert found.canary is None and found.service == CONFIG.service
    memory.kept[f"{key}:verdict"] = b'{"outcome": "rolled back", "reason": "worse"}'
    found = settled(file, memory).application.args.drafter
    assert found.canary is None and found.service == pool.service
    assert verdict_of(memory, key) is not None
    other = pool.model_copy(update={"canary": CONFIG.model_copy(update={"share": 0.2})})
    assert trial_key("foredraft", other) != key
