"""Whatever happens to messages and peers, the session commits what plain decoding would."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from foredraft.decoding.outcomes import outcomes_of
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import CorruptModelOutput, PrefixMismatch
from foredraft.lease import LedRound
from foredraft.messages import DraftBlock, DraftOpened, Propose, ProposeAhead, Round, Verdict
from foredraft.types import Acceptance, FinishReason, Guess, Proposal
from orchestrator.session.session import Session
from tests.support.examples import examples
from tests.support.orchestrator.peers import (
    MODEL,
    PROMPT,
    VOCAB,
    bushy,
    cut,
    decide,
    plain,
    request,
    true_block,
    wrong_at,
)

pick = st.integers(0, 1 << 16)


class SessionMachine(RuleBasedStateMachine):
    """The network holds every message ever sent; any may arrive, again and in any order."""

    @initialize(max_new=st.integers(1, 40), stops=st.sets(st.integers(0, VOCAB - 1), max_size=4))
    def start(self, max_new: int, stops: set[int]) -> None:
        self.stops = tuple(sorted(stops))
        self.plain = plain(PROMPT, max_new, self.stops)
        self.session = Session(request(max_new, stop_token_ids=self.stops))
        # What was asked, the one draft that is meant, and its prefix.
        self.requests: list[tuple[Propose | ProposeAhead, Propose, tuple[int, ...]]] = []
        self.blocks: list[tuple[Propose | ProposeAhead, DraftBlock]] = []
        self.rounds: list[tuple[int, Round]] = []
        self.verdicts: list[Verdict] = []
        self.verifiers: list[list[int]] = []
        self.named: list[int] | None = None
        self.led: list[LedRound] = []
        self.open_verifier()

    def open_verifier(self) -> None:
        self.verifiers.append(list(self.session.verify_open(16, Acceptance.COUPLED).prefix))
        self.session.verifier_opened(MODEL)

    @property
    def running(self) -> bool:
        return self.session.finish is None

    # The verifier's side.

    @precondition(lambda self: self.running)
    @rule(plain_steps=st.integers(1, 9))
    def ask_round(self, plain_steps: int) -> None:
        asked = self.session.next_round(plain_steps)
        assert len(asked.draft) + 1 <= self.session.tokens_left or not asked.draft
        assert 1 <= asked.plain_steps <= self.session.tokens_left
        self.rounds.append((len(self.verifiers) - 1, asked))

    @precondition(lambda self: self.rounds)
    @rule(which=pick)
    def round_arrives(self, which: int) -> None:
        epoch, asked = self.rounds[which % len(self.rounds)]
        with suppress(PrefixMismatch):
            self.verdicts.append(decide(self.verifiers[epoch], asked, self.stops))

    @precondition(lambda self: self.verdicts)
    @rule(which=pick)
    def verdict_arrives(self, which: int) -> None:
        before = self.session.generated
        step = self.session.verdict_arrived(self.verdicts[which % len(self.verdicts)])
        new = self.session.generated[len(before) :]
        assert (tuple(c.token for c in step.tokens) if step else ()) == new

    @precondition(lambda self: self.running)
    @rule()
    def verifier_is_lost(self) -> None:
        self.session.verifier_lost()
        self.open_verifier()

    @precondition(lambda self: self.running)
    @rule(length=st.integers(0, 8), wrong=st.integers(0, 8), bushy_=st.booleans())
    def verifier_leads_a_round(self, length: int, wrong: int, bushy_: bool) -> None:
        prefix, base = (*PROMPT, *self.session.generated), self.session.base
        if list(prefix) != self.verifiers[-1]:
            return
        ask = Propose(base, len(prefix), (), length)
        block = wrong_at(true_block(ask, prefix), wrong)
        if bushy_:
            block = bushy(block, length, wrong_first=True)
        asked = Round(base, block.tokens, 1, block.parents)
        verdict = decide(self.verifiers[-1], asked, self.stops)
        self.led.append(LedRound(block, verdict, length, 0))

    @precondition(lambda self: self.led)
    @rule(which=pick)
    def led_round_arrives(self, which: int) -> None:
        before = self.session.generated
        led = self.led[which % len(self.led)]
        with suppress(CorruptModelOutput):
            step = self.session.led_round_arrived(led)
            assert tuple(c.token for c in step.tokens) == self.session.generated[len(before) :]
            return
        assert self.session.generated == before

    @precondition(lambda self: self.led and self.running)
    @rule(which=pick)
    def led_nonsense_arrives(self, which: int) -> None:
        led = self.led[which % len(self.led)]
        lost = replace(led.verdict.base, prefix_hash=led.verdict.base.prefix_hash ^ 1)
        for bad in (
            replace(led, block=replace(led.block, base=lost)),
            replace(led, block=replace(led.block, tokens=(VOCAB,), parents=())),
            replace(led, block=replace(led.block, tokens=(0,), parents=(0,))),
        ):
            with pytest.raises(CorruptModelOutput):
                self.session.led_round_arrived(bad)

    @precondition(lambda self: self.rounds)
    @rule(extra=st.integers(1, 3))
    def verifier_answers_too_much(self, extra: int) -> None:
        _, asked = self.rounds[-1]
        most = 1 if asked.draft else asked.plain_steps
        for bad in (
            Verdict(asked.base, 0, (0,) * (most + extra)),
            Verdict(asked.base, len(asked.draft) + extra, (0,)),
            Verdict(asked.base, 0, (VOCAB,)),
            Verdict(asked.base, 0, ()),
            Verdict(asked.base, 1, (0,), path=(len(asked.draft),)),
            Verdict(asked.base, 2, (0,), path=(0, 0)),
        ):
            with suppress(CorruptModelOutput):
                assert self.session.verdict_arrived(bad) is None

    # The drafter's side.

    @precondition(lambda self: self.running)
    @rule(max_draft_tokens=st.integers(1, 16))
    def drafter_opens(self, max_draft_tokens: int) -> None:
        self.named = list(self.session.draft_open(Proposal.ARGMAX, Acceptance.COUPLED).prefix)
        self.session.drafter_opened(DraftOpened(MODEL, max_draft_tokens))

    @rule()
    def drafter_is_lost(self) -> None:
        self.session.drafter_lost()
        self.named = None

    @rule(length=st.integers(0, 20), ahead=st.booleans())
    def ask_draft(self, length: int, ahead: bool) -> None:
        session = self.session
        asked = session.drafts_ahead(length) if ahead else session.next_draft(length)
        if asked is None:
            return
        assert self.named is not None
        assert 1 <= asked.num_tokens <= length
        self.named = [*self.named[: asked.keep_len], *asked.append]
        assert hash_prefix(self.named) == asked.base.prefix_hash
        assert len(self.named) == asked.base.prefix_len
        if isinstance(asked, Propose):
            assert asked.base.prefix_len + asked.num_tokens < len(PROMPT) + 40
            self.requests.append((asked, asked, tuple(self.named)))
            return
        for outcome in outcomes_of(asked):
            alone = Propose(outcome.base, 0, (), asked.num_tokens)
            self.requests.append((asked, alone, (*self.named, *outcome.tokens)))

    @precondition(lambda self: self.requests)
    @rule(which=pick, wrong=st.lists(st.integers(0, 16), max_size=2), length=st.integers(1, 16))
    def drafter_answers(self, which: int, wrong: list[int], length: int) -> None:
        asked, alone, prefix = self.requests[which % len(self.requests)]
        block = true_block(alone, prefix)
        for index in wrong:
            block = wrong_at(block, index)
        self.blocks.append((asked, cut(block, length)))

    @precondition(lambda self: self.requests)
    @rule(which=pick, wrong=st.integers(0, 16), wrong_first=st.booleans())
    def drafter_answers_a_tree(self, which: int, wrong: int, wrong_first: bool) -> None:
        asked, alone, prefix = self.requests[which % len(self.requests)]
        block = wrong_at(true_block(alone, prefix), wrong)
        self.blocks.append((asked, bushy(block, asked.num_tokens, wrong_first)))

    @precondition(lambda self: self.blocks)
    @rule(which=pick)
    def block_arrives(self, which: int) -> None:
        self.arrive(*self.blocks[which % len(self.blocks)])

    def arrive(self, asked: Propose | ProposeAhead, block: DraftBlock) -> None:
        if isinstance(asked, Propose):
            self.session.draft_arrived(asked, block)
        else:
            self.session.drafts_ahead_arrived(asked, (block,))

    @precondition(lambda self: len(self.blocks) > 1)
    @rule(which=pick)
    def nonsense_arrives(self, which: int) -> None:
        asked, block = self.blocks[which % len(self.blocks)]
        other = self.blocks[(which + 1) % len(self.blocks)][1]
        ahead = isinstance(asked, ProposeAhead)
        known = {each.base for each in outcomes_of(asked)} if ahead else {asked.base}
        for bad in (
            replace(block, base=replace(block.base, prefix_hash=block.base.prefix_hash ^ 1)),
            replace(block, tokens=(VOCAB,)),
            replace(block, tokens=(0,) * (asked.num_tokens + 1)),
            replace(block, tokens=(0,), parents=(0,)),
            replace(block, tokens=(0,), parents=(-1, 0)),
            replace(block, guesses=(Guess(len(block.tokens), 0, 1.0),)),
            replace(block, guesses=(Guess(-1, VOCAB, 1.0),)),
            other if other.base not in known else replace(block, tokens=(VOCAB,)),
        ):
            with pytest.raises(CorruptModelOutput):
                self.arrive(asked, bad)

    # What always holds.

    @invariant()
    def committed_tokens_are_those_of_plain_decoding(self) -> None:
        got = self.session.generated
        assert got == self.plain[: len(got)]
        ended = len(got) == len(self.plain)
        stopped = ended and self.plain[-1] in self.stops
        expected = FinishReason.STOP if stopped else FinishReason.LENGTH if ended else None
        assert self.session.finish == expected

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        # Whatever happened, a working verifier brings the request to its end.
        if self.running:
            self.verifier_is_lost()
        while self.running:
            asked = self.session.next_round(3)
            self.session.verdict_arrived(decide(self.verifiers[-1], asked, self.stops))
        assert self.session.generated == self.plain


SessionMachine.TestCase.settings = examples(150, stateful_step_count=60)
TestSessionMachine = SessionMachine.TestCase
