"""Draft trees through the engine: exact verdicts, and the text of plain decoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import InvalidRequest
from foredraft.types import SamplingParams
from tests.support.examples import examples
from tests.support.verifiers import (
    CountingModel,
    RandomModel,
    make_engine,
    opening,
    round_after,
    verdict_of,
)

TINY = 3


def committed(request, answer) -> tuple[int, ...]:
    """The tokens that a round adds to the text."""
    return (*(request.draft[node] for node in answer.kept), *answer.next_tokens)


@pytest.mark.parametrize(
    ("draft", "parents", "path", "text"),
    [
        # The second child, then the branch that lies behind its sibling's.
        ((9, 4, 8, 5, 6), (-1, -1, 0, 1, 3), (1, 3, 4), (4, 5, 6, 7)),
        # The first branch lies in place: no path is named.
        ((4, 9, 5, 7), (-1, -1, 0, 0), (0, 2), (4, 5, 6)),
        ((4, 5, 9, 9), (-1, 0, -1, 1), (), (4, 5, 6)),
        ((8, 9), (-1, -1), (), (4,)),
        # Of equal siblings the first counts, though the other's branch would be kept further.
        ((4, 4, 5), (-1, -1, 1), (), (4, 5)),
        ((9, 4, 5, 5, 6), (-1, -1, 1, 1, 2), (1, 2, 4), (4, 5, 6, 7)),
    ],
)
def test_the_verdict_on_a_tree(draft, parents, path, text):
    model = CountingModel()
    engine = make_engine(model)
    handle = engine.open(opening((1, 2, 3)))
    request = round_after((1, 2, 3), draft, parents)
    answer = verdict_of(engine, handle, request)
    assert (answer.path, committed(request, answer)) == (path, text)
    assert answer.accepted == len(text) - 1
    # Once tidied, KV holds the committed tokens but the last.
    engine.compact()
    whole = (1, 2, 3, *text)
    assert model.text(engine.kv.table(handle), len(whole) - 1) == list(whole[:-1])
    forwards = len(model.batches)
    assert verdict_of(engine, handle, request) == answer
    assert len(model.batches) == forwards
    after = round_after(whole, (whole[-1] + 1, 0), number=1)
    assert committed(after, verdict_of(engine, handle, after)) == (whole[-1] + 1, whole[-1] + 2)


def test_a_path_may_spell_out_its_parents():
    model = CountingModel()
    engine = make_engine(model)
    handle = engine.open(opening((1, 2, 3)))
    request = round_after((1, 2, 3), (4, 5, 9), (-1, 0, 1))
    answer = verdict_of(engine, handle, request)
    assert (answer.accepted, answer.path, answer.next_tokens) == (2, (), (6,))
    assert not any(segment.parents for batch in model.batches for segment in batch)


def test_a_tree_goes_on_behind_a_stop_token():
    """Where the text ends is the caller's to say, of a tree as of a path."""
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), stop=(5,)))
    request = round_after((1, 2, 3), (5, 4, 5, 6), (-1, -1, 1, 2))
    assert committed(request, verdict_of(engine, handle, request)) == (4, 5, 6, 7)


@pytest.mark.parametrize("parents", [(-1,), (-1, 1), (-1, -2)])
def test_bad_parents_leave_the_session_usable(parents):
    engine = make_engine()
    handle = engine.open(opening())
    with pytest.raises(InvalidRequest) as caught:
        engine.submit(handle, round_after((1, 2, 3), (4, 5), parents))
    assert caught.value.param == "parents"
    with pytest.raises(InvalidRequest):
        engine.submit(handle, round_after((1, 2, 3), (), (-1,)))
    assert verdict_of(engine, handle, round_after((1, 2, 3), (4,))).accepted == 1


TREES = st.lists(st.tuples(st.integers(0, TINY - 1), st.integers(-1, 30)), max_size=8).map(
    lambda nodes: (
        [token for token, _ in nodes],
        [parent % (i + 1) - 1 for i, (_, parent) in enumerate(nodes)],
    )
)


@examples(150)
@given(
    st.lists(st.tuples(TREES, TREES), min_size=1, max_size=6),
    st.sampled_from([0.0, 1.0]),
    st.integers(0, 2**64 - 1),
)
def test_trees_commit_the_text_of_plain_decoding(rounds, temperature, seed):
    sampling = SamplingParams(temperature=temperature, seed=seed)
    model = RandomModel(vocab=TINY)
    engine = make_engine(model)
    texts = {}
    for name, prefix in (("a", (0, 1)), ("b", (2,))):
        asked = opening(prefix, session_id=name, new=90, sampling=sampling)
        texts[engine.open(asked)] = (name, list(prefix))
    for number, trees in enumerate(rounds):
        requests = {}
        for (handle, (name, text)), (tokens, parents) in zip(texts.items(), trees, strict=True):
            requests[handle] = round_after(text, tokens, parents, number=number, session_id=name)
            engine.submit(handle, requests[handle])
        while engine.has_work:
            for handle, answer in engine.step():
                text = texts[handle][1]
                text += committed(requests[handle], answer)
                engine.compact()
                assert model.text(engine.kv.table(handle), len(text) - 1) == text[:-1]
    for prefix, (name, text) in zip(((0, 1), (2,)), texts.values(), strict=True):
        asked = opening(prefix, session_id=name, new=90, sampling=sampling)
        handle, plain = engine.open(asked), list(prefix)
        for number in range(len(text) - len(prefix)):
            request = round_after(plain, number=number, session_id=name)
            plain += verdict_of(engine, handle, request).next_tokens
        assert text == plain
