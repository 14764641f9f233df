"""The pipeline over scripted peers: hits, misses, late and lost peers, cancellation, the report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.orchestrator.config import BreakerConfig, FixedConfig, OrchestratorConfig
from deployments.orchestrator.pipeline import generate
from deployments.orchestrator.report import SpeculationReport
from deployments.orchestrator.request import GenerationRequest, StepEvent
from foredraft.errors import (
    CorruptModelOutput,
    DeadlineExceeded,
    ForedraftError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from foredraft.types import DraftBlock, DraftOpened, FinishReason, Origin, Propose
from tests.unit.orchestrator.scripted import (
    MODEL,
    PROMPT,
    Collected,
    DraftScript,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    perfect,
    plain,
    request,
    true_block,
    wrong_at,
)

FIXED = config(adl=FixedConfig(k=4))


async def run(
    asked: GenerationRequest,
    drafter: ScriptedDrafter,
    verifier: ScriptedVerifier,
    settings_: OrchestratorConfig = FIXED,
) -> tuple[tuple[int, ...], SpeculationReport]:
    """Generate to the end; every run must equal plain decoding and leave nothing open."""
    got = Collected()
    async with asyncio.timeout(20):
        async for event in generate(asked, drafter, verifier, settings_):
            got.add(event)
    assert got.summary is not None
    assert got.tokens == plain(asked.prompt, asked.max_new_tokens, asked.stop_token_ids)
    assert not drafter.live and not verifier.live
    reconciles(got, got.summary.report)
    return got.tokens, got.summary.report


def reconciles(got: Collected, report: SpeculationReport) -> None:
    """The report's sums are those of the tokens and of the steps."""
    origins = [c.origin for step in got.steps for c in step.tokens]
    assert report.tokens == len(got.tokens) == len(origins)
    assert report.kept == origins.count(Origin.KEPT) == sum(s.stats.kept for s in got.steps)
    assert report.rounds == len(got.steps)
    assert report.drafted == sum(s.stats.drafted for s in got.steps)
    assert report.draft_rounds == sum(report.accepted_histogram.values())
    assert report.kept == sum(n * count for n, count in report.accepted_histogram.items())
    assert report.run_ahead_hits <= report.run_ahead_asked
    assert 0 <= report.kept_per_drafted <= 1 and 0 <= report.run_ahead_hit_rate <= 1


def wrong(at: int, every: int = 1) -> DraftScript:
    """A drafter whose every n-th block is wrong at one index."""

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        return wrong_at(block, at) if index % every == 0 else block

    return script


async def a_millisecond(_: int) -> None:
    await asyncio.sleep(0.001)


async def test_every_prediction_comes_true_with_a_perfect_drafter() -> None:
    drafter = ScriptedDrafter()
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.rounds == report.draft_rounds == 12
    assert report.mat == report.mean_k == 4.0
    # One proposal for the prompt, then one ahead of each verdict but the last: none just in time.
    assert len(drafter.asked) == 12
    assert report.run_ahead_asked == report.run_ahead_hits == 11
    assert all(ask.append for ask in drafter.asked[1:])


async def test_a_miss_is_drafted_just_in_time_from_the_last_common_token() -> None:
    drafter = ScriptedDrafter(wrong(at=2))
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.run_ahead_hits == 0
    assert report.mat == 2.0
    ahead, just_in_time = drafter.asked[1], drafter.asked[2]
    assert (ahead.keep_len, len(ahead.append)) == (len(PROMPT), 5)
    assert (just_in_time.keep_len, len(just_in_time.append)) == (len(PROMPT) + 2, 1)


async def test_the_next_draft_is_under_way_while_a_round_is_verified() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    asked_before_verdict: list[int] = []

    async def before(index: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        asked_before_verdict.append(len(drafter.asked))

    verifier.before = before
    await run(request(), drafter, verifier)
    assert asked_before_verdict[:5] == [2, 3, 4, 5, 6]


async def test_a_first_draft_that_comes_after_the_first_round_is_trimmed() -> None:
    verified = asyncio.Event()

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 0:
            await verified.wait()
        return true_block(ask, prefix)

    async def before(index: int) -> None:
        if index == 1:
            verified.set()
            await asyncio.sleep(0.01)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = before
    _, report = await run(
        request(), drafter, verifier, FIXED.model_copy(update={"draft_deadline_ms": 1.0})
    )
    assert [len(r.draft) for r in verifier.rounds[:2]] == [0, 0]
    assert report.mat > 0


async def test_plain_requests_open_no_drafter_and_take_long_steps() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    _, report = await run(request(60, speculate=False), drafter, verifier)
    assert drafter.opens == 0
    assert [r.plain_steps for r in verifier.rounds] == [8] * 7 + [4]
    assert (report.origins, report.mat, report.drafter_attaches) == ({Origin.PLAIN: 60}, 0.0, 0)


@pytest.mark.parametrize("max_new", [1, 2, 5, 6])
async def test_short_requests_end_exactly(max_new: int) -> None:
    await run(request(max_new), ScriptedDrafter(), ScriptedVerifier())


async def test_a_stop_token_inside_a_draft_ends_the_request() -> None:
    stop = plain(PROMPT, 30)[11]
    got = Collected()
    events = generate(
        request(60, stop_token_ids=(stop,)), ScriptedDrafter(), ScriptedVerifier(), FIXED
    )
    async for event in events:
        got.add(event)
    assert got.summary is not None and got.summary.finish is FinishReason.STOP
    assert got.tokens == plain(PROMPT, 60, (stop,))


# Drafters that are slow, gone or wrong.


async def test_a_late_draft_makes_one_round_plain_and_speculation_resumes() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 3:
            await asyncio.sleep(0.06)
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    slow = FIXED.model_copy(update={"draft_deadline_ms": 20.0})
    _, report = await run(request(400), drafter, verifier, slow)
    lengths = [len(r.draft) for r in verifier.rounds]
    assert 0 in lengths and any(lengths[-3:])
    assert drafter.opens == 1 and report.draft_rounds > 10


async def test_a_drafter_that_never_answers_is_replaced() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 2:
            await asyncio.Event().wait()
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    impatient = FIXED.model_copy(update={"draft_deadline_ms": 10.0, "drafter_timeout_s": 0.03})
    _, report = await run(request(400), drafter, verifier, impatient)
    assert report.drafter_attaches == 2
    assert any(r.draft for r in verifier.rounds[-3:])


async def test_a_late_draft_is_waited_for_once() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 2:
            await asyncio.sleep(0.4)
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    patient = FIXED.model_copy(
        update={"draft_deadline_ms": 20.0, "breaker": BreakerConfig(threshold=99)}
    )
    _, report = await run(request(400), drafter, verifier, patient)
    assert report.draft_rounds <= 3 and report.drafting_s < 0.1


async def test_a_draft_in_time_forgives_the_late_ones_before_it() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index % 4 == 3:
            await asyncio.sleep(0.05)
        return true_block(ask, prefix)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    strict = FIXED.model_copy(
        update={"draft_deadline_ms": 20.0, "breaker": BreakerConfig(threshold=2, cooldown_s=60)}
    )
    await run(request(400), drafter, verifier, strict)
    assert drafter.opens == 1
    assert len(drafter.asked) > 8


async def test_a_new_drafter_starts_with_the_longest_draft() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == 20:
            raise Unavailable("killed")
        return replace(wrong_at(true_block(ask, prefix), 1), generated_len=2)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    verifier.before = a_millisecond
    await run(request(200), drafter, verifier, config())
    lengths = [ask.num_tokens for ask in drafter.asked]
    assert lengths[0] == lengths[21] == 16
    assert max(lengths[10:21]) < 16


async def test_a_drafter_that_is_always_late_is_asked_less_and_less() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        await asyncio.sleep(0.02)
        return wrong_at(true_block(ask, prefix), 0)

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    hurried = FIXED.model_copy(
        update={"draft_deadline_ms": 1.0, "breaker": BreakerConfig(threshold=2, cooldown_s=60)}
    )
    _, report = await run(request(800), drafter, verifier, hurried)
    # With the breaker open, rounds neither wait nor ask.
    assert drafter.opens == 1 and len(drafter.asked) <= 4
    assert report.drafting_s < 0.1


@pytest.mark.parametrize("lost_at", range(5))
async def test_a_lost_drafter_is_replaced_and_speculation_resumes(lost_at: int) -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if index == lost_at:
            raise Unavailable("killed")
        return true_block(ask, prefix)

    async def opening(opens: int) -> None:
        if opens in (2, 3, 4):
            raise Unavailable("nobody there")

    drafter, verifier = ScriptedDrafter(script), ScriptedVerifier()
    drafter.opening, verifier.before = opening, a_millisecond
    _, report = await run(request(300), drafter, verifier)
    assert (drafter.opens, report.drafter_attaches) == (5, 2)
    assert any(r.draft for r in verifier.rounds[-3:])
    assert any(not r.draft for r in verifier.rounds)


async def test_without_any_drafter_decoding_is_plain() -> None:
    async def opening(opens: int) -> None:
        raise Unavailable("nobody there")

    drafter = ScriptedDrafter()
    drafter.opening = opening
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.draft_rounds == 0


async def test_a_drafter_that_cannot_be_reached_delays_only_the_first_round() -> None:
    async def opening(opens: int) -> None:
        await asyncio.Event().wait()

    drafter = ScriptedDrafter()
    drafter.opening = opening
    quick = FIXED.model_copy(update={"draft_deadline_ms": 20.0})
    _, report = await run(request(400), drafter, ScriptedVerifier(), quick)
    assert report.draft_rounds == 0 and report.drafting_s < 0.02


async def test_a_drafter_that_refuses_the_session_is_not_asked_again() -> None:
    async def opening(opens: int) -> None:
        raise InvalidRequest("too long", param="max_len")

    drafter = ScriptedDrafter()
    drafter.opening = opening
    verifier = ScriptedVerifier()
    _, report = await run(request(), drafter, verifier)
    assert drafter.opens == 1
    # It is decoded plainly, in long steps, and the answer says why.
    assert report.drafter_refusal == "too long"
    assert max(asked.plain_steps for asked in verifier.rounds) == 8


async def test_a_drafter_with_a_bug_costs_no_request() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        raise RuntimeError("bug")

    async def opening(opens: int) -> None:
        if opens == 2:
            raise RuntimeError("another")

    drafter = ScriptedDrafter(script)
    drafter.opening = opening
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert report.draft_rounds == 0


async def test_a_draining_drafter_is_left_for_another_one() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 3:
            next(iter(drafter.live)).draining = True

    verifier.before = before
    _, report = await run(request(120), drafter, verifier)
    assert (drafter.opens, report.drafter_attaches) == (2, 2)
    assert any(r.draft for r in verifier.rounds[-3:])


@pytest.mark.parametrize(
    "model", [replace(MODEL, tokenizer_hash="?"), replace(MODEL, vocab_size=9)]
)
async def test_a_drafter_of_another_tokenizer_is_refused(model: object) -> None:
    drafter = ScriptedDrafter(opened=DraftOpened(model, 16))  # type: ignore[arg-type]
    _, report = await run(request(), drafter, ScriptedVerifier())
    assert drafter.opens == 1
    assert report.draft_rounds <= 1


async def test_nonsense_from_a_drafter_changes_nothing_and_gets_it_replaced() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        return (
            replace(block, tokens=(99_999,)),
            replace(block, base=replace(block.base, prefix_len=1)),
            replace(block, tokens=()),
            replace(block, tokens=block.tokens * 9),
            block,
        )[index % 5]

    drafter = ScriptedDrafter(script)
    await run(request(200), drafter, ScriptedVerifier())
    assert drafter.opens > 1


# Verifiers that are lost, drained or refuse.


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("lost_at", range(4))
async def test_a_lost_verifier_is_replaced_and_no_token_is_lost_or_repeated(
    lost_at: int, decided: bool
) -> None:
    async def script(index: int) -> None:
        if index == lost_at:
            raise Unavailable("killed")

    verifier = ScriptedVerifier()
    if decided:
        verifier.after = script
    else:
        verifier.before = script
    drafter = ScriptedDrafter(wrong(at=3, every=3))
    _, report = await run(request(), drafter, verifier)
    assert report.verifier_moves == 1
    lost, again = verifier.rounds[lost_at : lost_at + 2]
    # The draft is asked again, so nothing is drafted twice for it.
    assert again.draft == lost.draft and again.base.round == lost.base.round + 1
    assert again.base.prefix_hash == lost.base.prefix_hash
    assert len(verifier.opens[1].prefix) == again.base.prefix_len


async def test_a_verifier_that_stays_away_ends_the_request_with_its_error() -> None:
    async def opening(opens: int) -> None:
        if opens > 1:
            raise Unavailable("nobody there")

    async def before(index: int) -> None:
        if index == 3:
            raise Unavailable("killed")

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.opening, verifier.before = opening, before
    got = Collected()
    with pytest.raises(Unavailable):
        async for event in generate(request(), drafter, verifier, FIXED):
            got.add(event)
    assert len(verifier.opens) == 1 + FIXED.verifier_retry.attempts
    assert len(got.steps) == 3 and got.tokens == plain(PROMPT, 60)[: len(got.tokens)]
    assert not drafter.live and not verifier.live


async def test_numbers_that_are_not_finite_end_the_request_after_the_retries() -> None:
    async def before(index: int) -> None:
        raise CorruptModelOutput("logits are not finite")

    verifier = ScriptedVerifier()
    verifier.before = before
    with pytest.raises(CorruptModelOutput):
        await run(request(), ScriptedDrafter(), verifier)


async def test_a_full_verifier_refuses_at_once_but_not_a_request_that_was_admitted() -> None:
    async def full(opens: int) -> None:
        raise Overloaded("no room")

    verifier = ScriptedVerifier()
    verifier.opening = full
    with pytest.raises(Overloaded):
        await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 1

    async def full_for_a_while(opens: int) -> None:
        if opens in (2, 3):
            raise Overloaded("no room")

    async def before(index: int) -> None:
        if index == 2:
            raise Unavailable("killed")

    verifier = ScriptedVerifier()
    verifier.opening, verifier.before = full_for_a_while, before
    await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 4


async def test_a_draining_verifier_is_left_at_the_next_round() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 2:
            verifier.live[0].draining = True

    verifier.before = before
    _, report = await run(request(), ScriptedDrafter(), verifier)
    assert report.verifier_moves == 1
    assert len(verifier.opens[1].prefix) == verifier.rounds[3].base.prefix_len


async def test_with_nowhere_to_go_a_draining_verifier_serves_to_the_end() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        verifier.live[0].draining = True

    async def opening(opens: int) -> None:
        if opens > 1:
            raise Unavailable("nobody there")

    verifier.before, verifier.opening = before, opening
    await run(request(), ScriptedDrafter(), verifier)
    assert len(verifier.opens) == 2


async def test_a_verifier_with_another_model_is_not_taken() -> None:
    verifier = ScriptedVerifier()

    async def before(index: int) -> None:
        if index == 1:
            verifier.model = replace(MODEL, name="another")
            raise Unavailable("killed")

    verifier.before = before
    with pytest.raises(Unavailable, match="another model"):
        await run(request(), ScriptedDrafter(), verifier)
    assert not verifier.live


# Ends.


@pytest.mark.parametrize("phase", range(8))
async def test_closing_the_generator_closes_both_streams(phase: int) -> None:
    drafter, verifier = ScriptedDrafter(wrong(at=2, every=2)), ScriptedVerifier()
    events = generate(request(4000), drafter, verifier, FIXED)
    async for event in events:
        assert isinstance(event, StepEvent)
        break
    for _ in range(phase):
        await asyncio.sleep(0)
    rounds = len(verifier.rounds)
    await events.aclose()
    assert not drafter.live and not verifier.live
    assert len(verifier.rounds) <= rounds + 1


@pytest.mark.parametrize("stuck", ["drafter", "verifier", "opening", "reader"])
async def test_cancelling_the_reader_closes_both_streams(stuck: str) -> None:
    async def forever(*_: object) -> DraftBlock:
        await asyncio.Event().wait()
        raise AssertionError

    async def wait(_: int) -> None:
        await asyncio.Event().wait()

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    if stuck == "drafter":
        drafter.script = forever
    if stuck == "verifier":
        verifier.before = wait
    if stuck == "opening":
        verifier.opening = wait

    async def read() -> None:
        async for _ in generate(request(4000), drafter, verifier, FIXED):
            if stuck == "reader":
                await asyncio.Event().wait()

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.02)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    for _ in range(10):
        await asyncio.sleep(0)
    assert not drafter.live and not verifier.live


async def test_decoding_pauses_for_a_slow_reader() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    events = generate(request(4000), drafter, verifier, FIXED)
    await anext(events)
    await asyncio.sleep(0.05)
    assert len(verifier.rounds) <= FIXED.read_ahead + 3
    await events.aclose()


async def test_a_stream_that_will_not_close_is_not_waited_for() -> None:
    async def stubborn() -> None:
        await asyncio.Event().wait()

    verifier = ScriptedVerifier()
    events = generate(
        request(), ScriptedDrafter(), verifier, FIXED.model_copy(update={"close_timeout_s": 0.02})
    )
    await anext(events)
    verifier.live[0].close = stubborn  # type: ignore[method-assign]
    async with asyncio.timeout(1):
        await events.aclose()


async def test_the_requests_deadline_ends_both_streams() -> None:
    async def before(index: int) -> None:
        await asyncio.sleep(0.005)

    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.before = before
    with pytest.raises(DeadlineExceeded):
        await run(request(4000, timeout_s=0.05), drafter, verifier)
    assert not drafter.live and not verifier.live


async def test_a_verifier_that_does_not_answer_is_left() -> None:
    async def before(index: int) -> None:
        if index == 1:
            await asyncio.Event().wait()

    verifier = ScriptedVerifier()
    verifier.before = before
    quick = FIXED.model_copy(update={"verify_timeout_s": 0.02})
    _, report = await run(request(), ScriptedDrafter(), verifier, quick)
    assert report.verifier_moves == 1


# Everything at once.

FAULTS = (None, None, None, "lost", "late", "wrong", "guess", "nonsense", "short")


@settings(max_examples=40, deadline=None)
@given(
    drafting=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=12),
    verifying=st.lists(
        st.sampled_from((None, None, None, "before", "after", "drain")), min_size=1, max_size=8
    ),
    max_new=st.integers(1, 80),
    stops=st.sets(st.integers(0, 49), max_size=2),
    adaptive=st.booleans(),
)
def test_any_mix_of_faults_gives_the_tokens_of_plain_decoding(
    drafting: list[str | None],
    verifying: list[str | None],
    max_new: int,
    stops: set[int],
    adaptive: bool,
) -> None:
    drafter, verifier = ScriptedDrafter(perfect), ScriptedVerifier()

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        match drafting[index % len(drafting)]:
            case "lost":
                raise ForedraftError("gone")
            case "late":
                await asyncio.sleep(0.004)
            case "wrong":
                return wrong_at(block, index % 3)
            case "guess":
                return wrong_at(block, len(block.tokens))
            case "nonsense":
                return replace(block, tokens=(-5,))
            case "short":
                return replace(block, tokens=block.tokens[:1], bonus_guess=-1)
        return block

    def fault(index: int) -> str | None:
        # Faults end, so that the retries suffice.
        return verifying[index] if index < len(verifying) else None

    async def before(index: int) -> None:
        if fault(index) == "before":
            raise Unavailable("gone")
        if fault(index) == "drain":
            verifier.live[-1].draining = True

    async def after(index: int) -> None:
        if fault(index) == "after":
            raise Unavailable("gone")

    drafter.script, verifier.before, verifier.after = script, before, after
    settings_ = config(draft_deadline_ms=2.0).model_copy(
        update={"verifier_retry": FIXED.verifier_retry.model_copy(update={"attempts": 9})}
        | ({} if adaptive else {"adl": FixedConfig(k=5)})
    )
    asyncio.run(run(request(max_new, stop_token_ids=tuple(stops)), drafter, verifier, settings_))
