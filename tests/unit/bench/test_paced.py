"""Paced turns become points; a paced file is slowed down as a whole; a pair is played back."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from bench.load.traffic import Answer, Turn
from bench.paced.points import (
    Modelled,
    PacedTurn,
    Setting,
    as_markdown,
    paced_point,
    sessions_over,
    share_of_ideal,
    summary,
)
from bench.paced.record import RecordingPlan, recorded
from bench.paced.run import PacedPlan, check_texts, paced, traffic_of
from bench.paced.shares import as_markdown as shares_table
from bench.paced.shares import shared_point
from bench.paced.shares import summary as shares_line
from deployments.config import PACED_FILE, located, read
from deployments.in_process import engines
from foredraft.errors import Unavailable
from foredraft.pacing.config import PaceConfig
from foredraft.pacing.recording import RecordedText
from foredraft.types import SamplingParams
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent

# A pass takes a millisecond, and one more for each thousand rows beyond a thousand.
PACE = PaceConfig(
    weight_bytes=1e9,
    flops_per_token=1e9,
    kv_bytes_per_token=0,
    bandwidth=1e12,
    peak_flops=1e15,
    bandwidth_fraction=1,
    flops_fraction=1,
)
HALF = PACE.model_copy(update={"weight_bytes": 0.5e9})
PACED = sorted(PACED_FILE.parent.glob("*.yaml"))


def gauges(passes: int, rounds: int, rows: int, modelled_s: float, **more: float) -> dict:
    zeros = dict.fromkeys(("late_passes", "prefill_s", "overrun_s", "round_context"), 0.0)
    counts = {"paced_passes": passes, "paced_rounds": rounds, "round_rows": rows}
    return zeros | counts | {"modelled_s": modelled_s} | more


def turn(seconds: float, tokens: int, verifier: dict, drafter: dict) -> PacedTurn:
    """A turn of two sessions that were both in flight all the time."""
    answers = tuple(Answer(tuple(range(tokens)), 0.0, (seconds,)) for _ in range(2))
    return PacedTurn(Turn(answers, seconds), verifier, drafter, 0.25)


def test_the_ideal_shares_each_pass_among_all_sessions_and_overlaps_drafts() -> None:
    nothing = gauges(0, 0, 0, 0.0)
    plain = turn(4.0, 10, gauges(300, 400, 400, 3.0, prefill_s=0.4), nothing)
    # 100 rounds of two sessions: 50 shared passes of 10 ms, while drafting takes 5 ms.
    ours = turn(1.0, 10, gauges(60, 100, 500, 0.6, late_passes=3), gauges(40, 100, 900, 0.2))
    setting = Setting("model", 2, 0.0, 10)
    found = paced_point(setting, Modelled(PACE, HALF), [plain], [ours])
    assert found.of_ideal == pytest.approx(0.5)
    assert found.plain_of_ideal == pytest.approx((2.0 + 0.4) / 4)
    assert (found.plain, found.foredraft, found.ratio) == (50.0, 200.0, 4.0)
    assert (found.tokens_per_round, found.rows_per_round) == (0.2, 5.0)
    assert (found.verifying, found.drafting) == (0.6, 0.2)
    assert found.verify_ms == pytest.approx(1.0)
    assert found.draft_ms == pytest.approx(0.5)
    assert found.late == pytest.approx(3 / 400)
    assert found.identical == 1.0
    table = as_markdown([found])
    assert (
        "not a GPU" in table and "| model | 0 | 2 | 10 | 0 | on | 50 | 200 | - | 4.00x |" in table
    )


def test_as_requests_end_the_ideal_is_that_of_fewer_sessions() -> None:
    turn = Turn((Answer((1,), 0.0, (4.0,)), Answer((2,), 1.0, (2.0, 3.0))), 4.0)
    assert sessions_over(turn) == {1: 2.0, 2: 2.0}
    # Two seconds of one session and two of two: 200 and 400 passes of 10 ms.
    found = PacedTurn(turn, gauges(1, 300, 300, 0.0), gauges(0, 0, 0, 0.0), 0.0)
    share = share_of_ideal(found, Modelled(PACE, HALF), 10, max)
    assert share == pytest.approx(0.5)


def test_in_turn_a_round_takes_drafting_and_verifying() -> None:
    ours = turn(1.0, 10, gauges(60, 100, 500, 0.6), gauges(40, 100, 900, 0.2))
    found = paced_point(Setting("model", 2, 0.0, 10), Modelled(PACE, HALF), [ours], [ours])
    # 50 shared passes of 10 ms and of 5 ms.
    assert found.of_ideal == pytest.approx(0.5) and found.in_turn == pytest.approx(0.75)


def test_the_closed_form_is_of_one_session() -> None:
    ours = turn(1.0, 10, gauges(50, 50, 500, 0.5), gauges(50, 50, 900, 0.25))
    found = paced_point(Setting("m", 1, 0.0, 10, 2.0), Modelled(PACE, HALF), [ours], [ours])
    # 0.4 tokens a round of 1 ms and 0.5 ms, 4 ms on the link.
    assert found.closed_form == pytest.approx((400 / 5.5, 400 / 4.5))
    assert "| 73, 89 |" in as_markdown([found])
    assert "sessions 1, link 2 ms, run-ahead on: plain 200 tokens/s" in summary(found)


def test_where_drafting_takes_longer_the_ideal_is_the_drafters() -> None:
    ours = turn(1.0, 10, gauges(60, 100, 500, 0.6), gauges(40, 100, 900, 0.2))
    found = paced_point(Setting("m", 2, 0.0, 10), Modelled(HALF, PACE), [ours], [ours])
    assert found.of_ideal == pytest.approx(0.5)


@pytest.mark.parametrize("path", PACED, ids=lambda path: path.stem)
def test_a_paced_file_is_slowed_down_with_its_deadlines_and_links(path: Path) -> None:
    file = read(path)
    before = file.application.args
    after = paced(file, Path("/recording"), 20, 1.5, run_ahead=False).application.args
    for name in ("drafter", "verifier"):
        service = getattr(after, name).service
        assert service.pace is not None and service.pace.slowdown == 20
        assert service.recording == Path("/recording")
    rounds_ms = after.verifier.service.plain_round_ms
    assert rounds_ms == 20 * before.verifier.service.plain_round_ms
    assert after.drafter.link.delay_ms == 30
    assert after.verifier.link.delay_ms == 0
    assert after.orchestrator.draft_deadline_ms == 20 * before.orchestrator.draft_deadline_ms
    assert after.orchestrator.run_ahead_min_hit_rate == 1.0
    assert (
        paced(file, Path("/r"), 2, 0, run_ahead=True)
        .application.args.orchestrator.model_copy(
            update={"draft_deadline_ms": before.orchestrator.draft_deadline_ms}
        )
        .run_ahead_min_hit_rate
        == before.orchestrator.run_ahead_min_hit_rate
    )


def test_the_heavy_drafters_passes_take_40_to_50_percent_of_the_verifiers() -> None:
    args = read(PACED_FILE.with_name("h100_heavy_drafter.yaml")).application.args
    verifier, drafter = args.verifier.service.pace, args.drafter.service.pace
    assert verifier is not None and drafter is not None
    assert 0.4 <= drafter.pass_s((9, 150, 1)) / verifier.pass_s((9, 150, 1)) <= 0.5


def test_verifiers_that_share_a_drafter_gain_what_drafting_would_take() -> None:
    # Two sessions a verifier; verifying takes 1 ms, drafting 0.5 ms.
    answers = tuple(Answer(tuple(range(100)), 0.0, (1.0,)) for _ in range(2))
    verified = gauges(100, 200, 2000, 0.5, late_passes=1)
    slower = Turn(tuple(Answer(a.tokens, 0.0, (2.0,)) for a in answers), 2.0)
    turns = [(Turn(answers, 1.0), verified), (slower, verified)]
    found = shared_point(2, 0.0, 1, Modelled(PACE, HALF), turns, gauges(100, 400, 4000, 0.5))
    assert found.each == (200.0, 100.0) and found.fairness == 0.5
    assert found.bound == found.in_reach == pytest.approx(1.5)
    # A token a round, in 1.5 ms for two sessions.
    assert found.gain == pytest.approx(150 / (2 / 1.5e-3))
    assert (found.verifying, found.drafting) == (0.25, 0.25)
    assert found.late == pytest.approx(2 / 300)
    many = Modelled(PACE, HALF.model_copy(update={"flops_per_token": 1e11}))
    costly = shared_point(2, 0.0, 1, many, turns, gauges(100, 400, 4000, 0.5))
    # Drafts of twenty rows a verifier take 2 ms: two verifiers have half of one's.
    assert costly.in_reach == pytest.approx(3 / 4)
    assert "| 0 | 2 x 2 | 150, 300 | 0.50 |" in shares_table([found])
    assert "2 verifiers of 2 sessions: 300 tokens/s, gain 0.11x of 1.50x" in shares_line(found)


def test_a_turn_sends_recorded_prompts_with_their_sampling() -> None:
    texts = [RecordedText((1, 2, 3), 1, 0.0, 5), RecordedText((4, 5), 1, 0.8, 6)]
    texts.append(RecordedText((7, 8, 9), 2, 0.0, 9))
    traffic = traffic_of(texts, Setting("m", 4, 0.0, 1), 3)
    assert list(traffic.prompts) == [(1,), (7, 8), (1,)]
    assert [sampling.seed for sampling in traffic.samplings] == [5, 9, 5]
    assert (traffic.clients, traffic.max_tokens) == (4, [2, 2, 2])
    answers = [Answer(tokens, 0.0, (1.0,)) for tokens in ((2, 3), (9,), (2, 3))]
    check_texts(texts, 0.0, answers)
    with pytest.raises(Unavailable, match="recorded"):
        check_texts(texts, 0.0, answers[1:])


def test_slowdowns_rise_with_the_sessions() -> None:
    plan = PacedPlan(slowdowns=((1, 10), (32, 50)))
    assert [plan.slowdown_of(n) for n in (1, 2, 32, 256)] == [10, 50, 50, 50]
    assert PacedPlan(slowdown=3).slowdown_of(8) == 3


async def test_a_played_back_pair_decodes_the_recorded_texts_with_speculation(
    tmp_path: Path,
) -> None:
    file = read(PACED_FILE)
    plan = RecordingPlan(prompts=2, max_tokens=16, slots=(5, 8))
    args = located(file.application.args)
    path, texts = await recorded(args, plan, tmp_path, lambda line: None)
    assert (path, texts) == await recorded(args, plan, tmp_path, lambda line: None)
    assert len(texts) == 4
    played = paced(file, path, 1, 0, run_ahead=True).application.args
    always = played.orchestrator.model_copy(
        update={"adl": FixedConfig(k=8), "draft_deadline_ms": 5000.0}
    )
    played = played.model_copy(update={"orchestrator": always})
    mats: list[float] = []
    async with engines(played) as loaded:
        for text in texts:
            request = GenerationRequest(
                session_id=uuid.uuid4().hex,
                prompt=text.prompt,
                sampling=SamplingParams(text.temperature, seed=text.seed),
                max_new_tokens=16,
                stop_token_ids=loaded.eos,
            )
            tokens: list[int] = []
            report: SpeculationReport | None = None
            async for event in generate(
                request, loaded.drafter, loaded.verifier, played.orchestrator
            ):
                if isinstance(event, StepEvent):
                    tokens += [each.token for each in event.tokens]
                else:
                    report = event.report
            assert tuple(tokens) == text.answer
            assert report is not None and report.draft_rounds > 0
            mats.append(report.mat)
        assert max(mats) > 1
        assert loaded.runner.stats()["paced_passes"] > 0
