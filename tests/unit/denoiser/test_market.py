"""Drafts at a price: what is bought where rows are free, dear or in between; the text stays."""

from __future__ import annotations

import pytest

from denoiser_service.core.decode import vanilla
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from denoiser_service.market import Rests
from tests.support.denoiser.paged import PagedTable, Reader, finish, make_engine, opening
from tests.support.denoiser.tabular import Tabular, all_successors
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Priced

DRAFTS = 40


class ByRows:
    """A table whose calls take time by their rows, and an engine that knows it."""

    def __init__(self, row_s, fixed_s):
        self.model, self.now = PagedTable(blocks=400), 0.0
        self._row_s, self._fixed_s = row_s, fixed_s
        forward = self.model.forward

        def timed(segments):
            self.now += self.pass_s(sum(len(segment.tokens) for segment in segments))
            return forward(segments)

        self.model.forward = timed

    def pass_s(self, rows):
        return self._fixed_s + self._row_s * rows

    def engine(self, drafting=all_successors):
        rows = (1, 500)
        pricing = Priced(PassCosts(rows, [self.pass_s(each) for each in rows]))
        return make_engine(
            self.model,
            lambda rule, most: drafting,
            row_budget=500,
            most_drafts=DRAFTS,
            pricing=pricing,
            clock=lambda: self.now,
        )


def visited(request):
    """The states of a request's text."""
    sampling = request.sampling
    rule = Rule(request.unmasking, sampling.temperature, sampling.seed)
    text = Text(request.prefix, request.max_new_tokens)
    return {state for block in vanilla(Tabular(), text, rule).blocks for state in block.states}


def texts(engine, sessions=1):
    readers = [
        Reader(engine, opening(new=20, drafts=DRAFTS, temperature=1.0, seed=n, session_id=str(n)))
        for n in range(sessions)
    ]
    for reader in readers:
        reader.submit(100)
    found = finish(engine)
    for reader in readers:
        reader.hear(found[reader.handle])
    return [reader.text for reader in readers]


@pytest.mark.parametrize("sessions", [1, 3])
def test_drafts_are_bought_where_rows_are_cheap_and_the_text_stays(sessions):
    free, dear = ByRows(0.0, 1.0).engine(), ByRows(1.0, 0.0).engine()
    assert texts(free, sessions) == texts(dear, sessions)
    assert free.counts.calls < free.counts.steps
    assert dear.counts.calls == dear.counts.steps and not dear.counts.drafts


def test_where_not_even_a_sure_draft_pays_nothing_is_drafted():
    def drafting(anchor):
        raise AssertionError("drafted for nothing")

    texts(ByRows(1.0, 0.0).engine(drafting))


def test_drafts_that_take_longer_than_they_save_are_made_no_more():
    table, made = ByRows(0.1, 0.6), []

    def slow(anchor):
        made.append(anchor)
        table.now += 5.0
        return all_successors(anchor)

    request = opening(new=50, drafts=1)
    reader = Reader(table.engine(slow), request)
    reader.submit(200)
    reader.hear(finish(reader.engine)[reader.handle])
    assert 0 < len(made) < 10 < reader.calls


def test_drafts_that_never_come_true_are_bought_no_more():
    request = opening(new=50, drafts=1, temperature=1.0)
    came_to = visited(request)

    def wrong(anchor):
        return [each for each in all_successors(anchor) if each.state not in came_to][:1]

    # A sure draft would save a call, for a third of its time.
    engine = ByRows(0.1, 0.6).engine(wrong)
    reader = Reader(engine, request)
    reader.submit(200)
    reader.hear(finish(engine)[reader.handle])
    assert reader.calls == reader.steps > 45
    assert 3 < engine.counts.drafts < 20


def test_nobody_looks_at_drafts_for_a_while_where_none_are_bought():
    """Until a call's rows are cheap again, which is seen after the longest rest at the latest."""
    now, looks = [0.0], []

    class Buys:
        cheap = False

        def pass_s(self, rows, context):
            return 1.0

        def passed(self, done, idle_s):
            looks.append("passed")

        def buy(self, offers, rows, rounds, prefill=0):
            looks.append("buy")
            return [len(offer.expected) if self.cheap else 0 for offer in offers]

    pricing = Buys()
    engine = make_engine(
        PagedTable(blocks=400),
        lambda rule, most: all_successors,
        most_drafts=1,
        pricing=pricing,
        clock=lambda: now[0],
    )

    def denoised(number):
        request = opening(new=50, drafts=1, temperature=1.0, seed=number, session_id=str(number))
        reader = Reader(engine, request)
        reader.submit(100)
        reader.hear(finish(engine)[reader.handle])
        engine.close(reader.handle)
        return reader.calls

    calls = sum(denoised(number) for number in range(6))
    assert 8 < looks.count("buy") < 30 and looks.count("passed") < calls / 2
    assert not engine.counts.drafts
    pricing.cheap = True
    assert sum(denoised(number) for number in range(6, 9)) < 135


def test_rests_double_while_drafts_do_not_pay_and_begin_anew_once_they_do():
    rests = Rests()

    def next_rest(*saved_s):
        for each in saved_s:
            assert not rests.take()
            rests.looked(each)
        return sum(1 for _ in iter(rests.take, False))

    assert next_rest(*(0.5, -1.0) * 4) == 8
    # Trials of two calls.
    assert [next_rest(0.5, -1.0) for _ in range(4)] == [16, 32, 64, 64]
    assert next_rest(1.0, -0.5) == 0
    assert next_rest(*[-1.0] * 7) == 0
    assert next_rest(8.0) == 0
    assert next_rest(*[0.0] * 8) == 8
