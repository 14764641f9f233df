"""Plain rounds with drafts of the text's own n-grams: the same tokens, in fewer passes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import InvalidRequest
from foredraft.layout import Layout
from foredraft.ngram.params import NgramParams
from foredraft.types import NO_PRICE, Acceptance, LogitsParams, Price, SamplingParams
from tests.support.examples import examples
from tests.support.verifiers import (
    CountingModel,
    RandomModel,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.rules.ngrams import reference_trees
from verifier_service.schedule.pricing import Unpriced
from verifier_service.targets.own_ngrams import NgramsAccepted, OwnNgrams
from verifier_service.targets.pending import Pending
from verifier_service.targets.self_drafting import NoSelfDraft

# What stood in the text once is believed.
EAGER = NgramParams(pseudocounts=(1.0, 0.1), min_node_prob=0.01)


class Whim(Unpriced):
    """Buys any part of a draft."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def buy(self, offers, rows, rounds, prefill=0):
        return [self._random.randint(0, len(offer.expected)) for offer in offers]


class Dear(Unpriced):
    """A row takes as long as a pass."""

    def buy(self, offers, rows, rounds, prefill=0):
        return [0] * len(offers)

    def price(self, sessions, context):
        return Price(sessions, 1.0, 1.0)


def opened(params=EAGER, **fields):
    return replace(opening(**fields), ngram=params)


def own(most=8, params=EAGER, text=(), stops=(), accepted=None):
    made = OwnNgrams(most, params, frozenset(stops), reference_trees, accepted or NgramsAccepted())
    made.extend(text)
    return made


def text_of(engine, open_, rounds):
    """The text after plain rounds of so many steps, and the passes that they took."""
    handle, text, passes = engine.open(open_), list(open_.prefix), 0
    for number, steps in enumerate(rounds):
        asked = round_after(text, number=number, steps=steps, session_id=open_.session_id)
        verdict = verdict_of(engine, handle, asked)
        assert verdict.accepted == verdict.left_out == 0 and not verdict.path
        assert 1 <= len(verdict.next_tokens) <= steps
        text += verdict.next_tokens
        passes += verdict.timings.passes
    engine.close(handle)
    assert engine.kv.used_tokens == 0
    return text, passes


def test_text_that_repeats_itself_takes_fewer_passes_and_is_the_same():
    rounds = [30, 30, 30]
    plain, all_passes = text_of(make_engine(CountingModel(vocab=7)), opening(new=90), rounds)
    drafted, passes = text_of(make_engine(CountingModel(vocab=7)), opened(new=90), rounds)
    assert drafted == plain and all_passes == 90
    # Every draft is as long as it may be, once the text has come round.
    assert passes < 20


@examples(200)
@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 5),
    temperature=st.sampled_from([0.0, 0.8, 1.5]),
    stops=st.sampled_from([(), (0,)]),
    most=st.integers(1, 12),
    rounds=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    whim=st.integers(0, 99),
)
def test_whatever_is_bought_the_text_is_that_of_plain_rounds(
    seed, vocab, temperature, stops, most, rounds, whim
):
    fields = {
        "prefix": tuple(random.Random(seed).randrange(vocab) for _ in range(9)),
        "sampling": SamplingParams(temperature, seed=seed),
        "new": sum(rounds) + 1,
        "draft": most,
        "stop": stops,
    }
    plain, _ = text_of(make_engine(RandomModel(vocab=vocab)), opening(**fields), rounds)
    engine = make_engine(RandomModel(vocab=vocab), pricing=Whim(whim))
    assert text_of(engine, opened(**fields), rounds)[0] == plain


def test_a_round_ends_at_a_stop_token_within_a_draft():
    cycle = (1, 2, 3, 4, 5, 0)
    engine = make_engine(CountingModel(vocab=6))
    handle = engine.open(opened(prefix=cycle * 3, stop=(3,), new=20))
    verdict = verdict_of(engine, handle, round_after(cycle * 3, steps=20))
    assert verdict.next_tokens == (1, 2, 3)


def test_a_draft_goes_on_beside_rounds_with_a_drafters():
    engine = make_engine(CountingModel(vocab=7))
    text = tuple(number % 7 for number in range(20))
    handle = engine.open(opened(prefix=text, new=40))
    drafted = verdict_of(engine, handle, round_after(text, (6, 0, 5)))
    assert (drafted.accepted, drafted.next_tokens) == (2, (1,))
    # Without that draft the n-grams would have found the same tokens, and the next one at least.
    assert drafted.plain_tokens == 4
    text = (*text, 6, 0, 1)
    plain = verdict_of(engine, handle, round_after(text, number=1, steps=9))
    assert plain.next_tokens == (2, 3, 4, 5, 6, 0, 1, 2, 3)
    assert plain.timings.passes == 1
    assert (engine.counts.own_bought, engine.counts.own_kept) == (8, 8)


def test_where_a_row_costs_a_pass_nothing_is_drafted():
    rounds = [30, 30]
    engine = make_engine(CountingModel(vocab=7), pricing=Dear())
    _, passes = text_of(engine, opened(new=60), rounds)
    assert passes == 60 and engine.counts.own_bought == 0


@pytest.mark.parametrize("acceptance", [Acceptance.L2R, Acceptance.REJECTION, Acceptance.BLOCK])
def test_rules_that_cannot_verify_a_part_of_a_draft_do_without(acceptance):
    sampling = SamplingParams(0.8, seed=3)
    fields = {"new": 60, "sampling": sampling, "acceptance": acceptance}
    engine = make_engine(CountingModel(vocab=7))
    _, passes = text_of(engine, opened(**fields), [30, 30])
    assert passes == 60 and engine.counts.own_bought == 0


def test_a_model_with_a_layout_refuses_ngrams():
    model = CountingModel()
    model.info = replace(model.info, any_subset=True, mask_token_id=0)
    engine = make_engine(model)
    with pytest.raises(InvalidRequest, match="ngram"):
        engine.open(replace(opened(new=2), layout=Layout(9, (0, 1, 2))))


def test_what_was_rejected_makes_the_next_drafts_less_likely():
    drafts = own(text=[1, 2, 3, 4] * 3)
    before = drafts.draft(8)
    assert before.tokens[:4] == (1, 2, 3, 4)
    drafts.decided(8, [9], (), ())
    drafts.extend([9, 1, 2, 3, 4])
    after = drafts.draft(8)
    assert sum(after.expected) < 0.7 * sum(before.expected)
    assert all(0 <= each <= 1 for each in after.expected)


def test_a_session_begins_with_what_came_of_others_drafts():
    others = NgramsAccepted()
    first = own(text=[1, 2, 3, 4] * 3, accepted=others)
    before = own(text=[1, 2, 3, 4] * 3, accepted=others).draft(8)
    for _ in range(9):
        first.draft(8)
        first.decided(8, [9], (), ())
    after = own(text=[1, 2, 3, 4] * 3, accepted=others).draft(8)
    assert sum(after.expected) < 0.3 * sum(before.expected)


def priced(least, sessions=1):
    """A price below whose least chance no token pays."""
    return Price(sessions, 1.0, least / sessions)


def test_no_node_is_less_likely_than_what_pays():
    drafts = own(text=[1, 2, 1, 2, 1, 3, 1])
    both = drafts.draft(1)
    assert set(both.tokens) == {2, 3}
    # Twice what pays.
    assert drafts.draft(1, priced(min(both.expected) * 0.51)).tokens == both.tokens[:1]
    assert drafts.draft(1, priced(min(both.expected) * 0.49)).tokens == both.tokens
    assert drafts.draft(0).tokens == drafts.draft(-1).tokens == ()


def test_nothing_pays_below_a_rows_share_of_a_pass():
    assert Price(4, 2.0, 0.1).least_chance == pytest.approx(0.2)
    assert NO_PRICE.least_chance == 0.0


def test_what_plain_decoding_would_have_committed_is_counted_to_the_first_miss():
    drafts = own(text=[1, 2, 3, 4, 1, 2, 9, 4, 1])
    for tokens, count in (((2, 3, 4), 3), ((2, 9, 4), 3), ((2, 3, 9), 2), ((2, 7), 1), ((7,), 0)):
        assert drafts.foreseen(tokens, NO_PRICE) == count
    assert drafts.foreseen((), NO_PRICE) == drafts.foreseen((2, 3), priced(1.1)) == 0


def test_with_many_sessions_trees_rest_while_nothing_of_them_is_accepted():
    alone, among = own(text=[1, 2, 3] * 4), own(text=[1, 2, 3] * 4)

    def grown(drafts, sessions, kept):
        """Whether each of 16 passes had a tree, of which so many tokens were accepted."""
        found = []
        for _ in range(16):
            tree = drafts.draft(4, priced(0.0, sessions))
            found.append(bool(tree.tokens))
            drafts.decided(len(tree.tokens), [9] * (1 + min(kept, len(tree.tokens))), (), ())
        return found

    assert all(grown(alone, 1, 0)) and all(grown(own(text=[1, 2, 3] * 4), 16, 1))
    # Rests of 1, 2, 4 and 4 passes.
    assert [at for at, grows in enumerate(grown(among, 16, 0)) if grows] == [0, 2, 5, 10, 15]
    engine = make_engine(CountingModel(vocab=7))
    handle = engine.open(opened(prefix=(1, 2, 3), new=9))
    assert verdict_of(engine, handle, round_after((1, 2, 3), (4, 5))).plain_tokens == 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "fields",
    [
        {"logits": LogitsParams(frequency_penalty=0.7, prompt_len=3)},
        {"logits": LogitsParams(min_tokens=9, prompt_len=3), "stop_token_ids": (1,)},
        {"logprobs": 2, "prompt_logprobs": True},
    ],
)
def test_what_the_logits_are_processed_with_follows_the_draft(fields, temperature):
    prefix, sampling = (0, 1, 2), SamplingParams(temperature, seed=7)
    verdicts = []
    for ngram in (None, EAGER):
        engine = make_engine(RandomModel(vocab=3))
        open_ = replace(opening(prefix, new=40, sampling=sampling), ngram=ngram, **fields)
        handle, text, found = engine.open(open_), [*prefix], []
        for number in range(4):
            verdict = verdict_of(engine, handle, round_after(text, number=number, steps=9))
            text += verdict.next_tokens
            found.append((verdict.next_tokens, verdict.logprobs, verdict.prompt_logprobs))
        verdicts.append(found)
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_has_no_more_tokens_than_the_model_has_places(seed):
    prefix = tuple(random.Random(seed).randrange(3) for _ in range(40))
    fields = {"prefix": prefix, "new": 8, "sampling": SamplingParams(1.5, seed=seed), "draft": 12}
    models = [RandomModel(max_len=48, vocab=3) for _ in "ab"]
    plain, _ = text_of(make_engine(models[0]), opening(**fields), [5, 3])
    assert text_of(make_engine(models[1]), opened(**fields), [5, 3])[0] == plain
    assert all(one.start + len(one.tokens) <= 48 for batch in models[1].batches for one in batch)


def test_a_plain_round_ends_with_its_passes_or_with_their_time():
    round_ = replace(round_after((1, 2), steps=20), plain_passes=4)
    pending = Pending.of(round_, 0.0, NoSelfDraft(), 20, 8, NO_PRICE)
    # Three that take 3.6 end a little early, a fourth one would end later by more than that.
    for passes, seconds, ended in ((3, 3.3, False), (4, 3.3, True), (3, 3.6, True)):
        pending.passes, pending.compute_s = passes, seconds
        assert pending.took_its_passes(1.0) is ended
    # Where nothing is known of passes, they are counted; where none are named, there is no end.
    assert not pending.took_its_passes(0.0)
    pending.asked = replace(round_, plain_passes=0)
    assert not pending.took_its_passes(1.0)
