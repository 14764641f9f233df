"""Drafting in another model's tokens: vocabularies by hand with exact drafts, and trained ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_service.bridge import reading
from drafter_service.bridge.bridged import BridgedLM
from drafter_service.bridge.pair import NOTHING, Pair
from drafter_service.bridge.reading import Reading
from drafter_service.bridge.respelling import respelled
from drafter_service.bridge.vocabulary import Vocabulary
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.models.port import FILLED, BlockRequest
from drafter_service.proposals.draft_tree import TreeParams
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.prefix_chain import common
from drafter_service.proposals.proposals import coupled_path, tree_block
from foredraft.errors import ConfigError
from foredraft.noise.gumbel import gumbel
from foredraft.types import DraftBlock, DraftOpen, Proposal, SamplingParams
from tests.unit.drafter.scripted import ScriptedLM, asking, scores_of
from tests.unit.drafter.tokenizers_by_hand import (
    BOOK,
    DRAFTERS_PATTERN,
    EOS,
    TARGETS_PATTERN,
    by_hand,
    saved,
    trained,
    with_spaces,
)

# The drafter's tokens and the target's; "Ġ" is a space, "Ã" and "©" are the two bytes of "é".
END, A, B, C, AB, ABC, SPACE, SPACE_A, E1, E2, E = range(11)
DRAFTER = ["a", "b", "c", "ab", "abc", "Ġ", "Ġa", "Ã", "©", "Ã©"]
T_END, T_C, T_B, T_A, T_BC, T_SPACE, T_E1, T_E2 = range(8)
TARGET = ["c", "b", "a", "bc", "Ġ", "Ã", "©"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("by_hand")
    drafter = Vocabulary(saved(by_hand(DRAFTER), folder / "drafter"))
    target = Vocabulary(saved(by_hand(TARGET, "</s>"), folder / "target", "</s>"))
    return Pair(drafter, END, target, T_END, 16)


def rows_of(scores: BlockScores) -> list[dict[int, float]]:
    """Each slot's probabilities but those of tokens that will not be chosen."""
    return [
        {int(t): round(float(np.exp(q)), 6) for t, q in zip(ids, log_q, strict=True) if q > FILLED}
        for ids, log_q in zip(scores.tokens, scores.log_q, strict=True)
    ]


def test_tokens_are_paired_by_their_bytes(pair: Pair) -> None:
    first = {END: T_END, A: T_A, B: T_B, C: T_C, AB: T_A, ABC: T_A, SPACE: T_SPACE}
    first |= {SPACE_A: T_SPACE, E1: T_E1, E2: T_E2, E: T_E1}
    assert pair.first.tolist() == [first.get(token, NOTHING) for token in range(16)]
    assert pair.both == 7
    assert pair.said[ABC] == b"abc" and pair.said[END] == b""
    assert pair.heard([T_A, T_BC, T_SPACE, T_END, 99]) == b"abc <|end|>"


def test_a_path_of_shared_tokens_keeps_its_candidates(pair: Pair) -> None:
    scores = scores_of([{A: 0.6, B: 0.3, END: 0.1}, {C: 0.7, A: 0.2, END: 0.1}])
    assert rows_of(respelled(scores, pair)) == [
        {T_A: 0.6, T_B: 0.3, T_END: 0.1},
        {T_C: 0.7, T_A: 0.2, T_END: 0.1},
    ]


def test_what_the_target_lacks_is_spelled_in_its_tokens(pair: Pair) -> None:
    rows = [{ABC: 0.5, A: 0.2, B: 0.1, END: 0.01}, {C: 0.6, SPACE_A: 0.3, END: 0.05}]
    said = respelled(scores_of([*rows, {B: 0.5, END: 0.5}]), pair)
    # "abc" is "a" and "bc": the second stands for no slot. "abc" and "a" both begin with "a".
    assert rows_of(said) == [
        {T_A: 0.7, T_B: 0.1, T_END: 0.01},
        {T_BC: 1.0},
        {T_C: 0.6, T_SPACE: 0.3, T_END: 0.05},
    ]
    assert all(T_END in row for row in said.tokens.tolist())
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).tokens == (T_A, T_BC)
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).bonus_guess == T_C
    assert rows_of(respelled(scores_of(rows), pair)) == rows_of(said)[:2]


def test_two_tokens_may_be_one_of_the_targets(pair: Pair) -> None:
    edges = {(1, B, C): 2.0, (2, C, A): 5.0, (2, END, A): -5.0}
    rows = [{B: 0.6, A: 0.3, END: 0.1}, {C: 0.5, END: 0.3}, {SPACE: 0.6, A: 0.3, END: 0.1}]
    said = respelled(scores_of(rows, edges), pair)
    assert rows_of(said)[0] == {T_BC: 0.6, T_A: 0.3, T_END: 0.1}
    assert said.tokens[1].tolist()[:2] == [T_SPACE, T_A]
    # What stands for slot 2 follows slot 1's candidate on the path, whatever is before it.
    assert said.edge is not None and (said.edge[1, :, 1] == 5.0).all()
    assert coupled_path(said, 2, T_END, SamplingParams(), 0).tokens == (T_BC, T_A)


def test_edges_go_with_their_candidates(pair: Pair) -> None:
    edges = {(1, A, C): 1.0, (1, C, A): 2.0, (1, C, C): 3.0}
    said = respelled(
        scores_of([{A: 0.6, C: 0.3, END: 0.1}, {A: 0.5, C: 0.4, END: 0.1}], edges), pair
    )
    assert said.tokens.tolist() == [[T_A, T_C, T_END]] * 2
    assert said.edge is not None
    assert said.edge[1].tolist() == [[0.0, 1.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]


def test_the_end_is_said_where_it_is_drafted_and_nothing_behind_it(pair: Pair) -> None:
    rows = [{ABC: 0.9, END: 0.1}, {END: 0.9, A: 0.1}, {A: 0.5, END: 0.2}, {B: 0.5, END: 0.2}]
    said = respelled(scores_of(rows), pair)
    assert rows_of(said) == [{T_A: 0.9, T_END: 0.1}, {T_BC: 1.0}, {T_END: 0.9, T_A: 0.1}]
    drafted = coupled_path(said, 4, T_END, SamplingParams(), 0)
    assert (drafted.tokens, drafted.generated_len) == ((T_A, T_BC, T_END), 2)
    alone = respelled(scores_of([{END: 0.9, A: 0.1}]), pair)
    assert rows_of(alone) == [{T_END: 0.9, T_A: 0.1}]


def test_ids_without_a_token_are_never_candidates(pair: Pair) -> None:
    said = respelled(scores_of([{12: 0.6, A: 0.3, END: 0.1}]), pair)
    assert rows_of(said) == [{T_A: 0.3, T_END: 0.1}]
    tree = tree_block(said, 9, T_END, SamplingParams(), (), TreeParams(least_mass=0.0))
    assert set(tree.tokens) == {T_A, T_END}


def test_what_is_not_a_number_stays_so(pair: Pair) -> None:
    scores = scores_of([{A: 0.6, B: 0.3, END: 0.1}])
    scores.log_q[0, 1] = np.nan
    assert not np.isfinite(respelled(scores, pair).log_q).all()


def test_noise_is_that_of_the_targets_tokens(pair: Pair) -> None:
    scores = scores_of([{A: 0.3, B: 0.3, C: 0.3, END: 0.1}])
    for seed in range(20):
        own = gumbel(seed, np.array([7]), np.array([[T_A, T_B, T_C]]))[0]
        sampling = SamplingParams(temperature=1.0, seed=seed)
        [token] = coupled_path(respelled(scores, pair), 1, T_END, sampling, 7).tokens
        if token != T_END:
            assert token == (T_A, T_B, T_C)[int(own.argmax())]


def reading_of(pair: Pair, tokens: Sequence[int]) -> list[int]:
    return Reading(pair.drafter).read(pair.heard(tokens))


def test_a_text_is_read_in_the_drafters_tokens(pair: Pair) -> None:
    assert reading_of(pair, [T_A, T_BC, T_SPACE, T_A]) == [ABC, SPACE_A]
    assert reading_of(pair, [T_A, T_END, T_B]) == [A, END, B]
    # A cut inside a character, or inside what would be one token.
    assert reading_of(pair, [T_A, T_E1]) == [A, E1]
    assert reading_of(pair, [T_A, T_E1, T_E2]) == [A, E]
    assert reading_of(pair, [T_A, T_B]) == [AB]


def test_bytes_that_the_drafter_lacks_are_left_out(tmp_path: Path) -> None:
    poor = Vocabulary(saved(by_hand(["a", "b"]), tmp_path))
    assert poor.write("aéb".encode()) == [1, 2]
    assert poor.write("aé".encode()[:2]) == [1]


def test_spaces_may_be_letters_and_bytes_tokens(tmp_path: Path) -> None:
    words = Vocabulary(saved(with_spaces(), tmp_path))
    a, space_a, space = (words.ids[data] for data in (b"a", b" a", b" "))
    assert words.write(b"a a") == [a, space_a]
    assert words.write(b"  a") == [space, space_a]
    assert words.write("é".encode()) == [words.ids[b"\xc3"], words.ids[b"\xa9"]]
    assert words.specials == {EOS: 0, "<unk>": 1}


@cache
def two() -> tuple[Vocabulary, Vocabulary]:
    """Two vocabularies trained on one text, split and sized differently."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        drafter = saved(trained(DRAFTERS_PATTERN, 330), Path(name) / "drafter")
        target = saved(trained(TARGETS_PATTERN, 300), Path(name) / "target")
        return Vocabulary(drafter), Vocabulary(target)


PIECES = st.lists(
    st.one_of(st.sampled_from(BOOK.split(" ")).map(str.encode), st.text().map(str.encode)),
    max_size=30,
).map(b" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.one_of(PIECES, st.binary())), max_size=8))
def test_what_is_read_says_the_text(edits: list[tuple[int, bytes]]) -> None:
    drafter, _ = two()
    kept = Reading(drafter)
    data = b""
    for cut, more in edits:
        data = data[: max(0, len(data) - cut)] + more
        assert b"".join(drafter.spelling[token] for token in kept.read(data)) == data


def test_only_the_end_of_a_text_is_read_again() -> None:
    drafter, target = two()
    written: list[int] = []

    class Watched(Vocabulary):
        def __init__(self) -> None:
            self.__dict__ = drafter.__dict__

        def write(self, data: bytes) -> list[int]:
            written.append(len(data))
            return super().write(data)

    kept, data = Reading(Watched()), (BOOK * 9).encode()
    at = 0
    for token in target.write(data):
        at += len(target.spelling[token])
        assert kept.read(data[:at]) == drafter.write(data[:at])
    assert max(written[60:]) < 4 * reading._OVERLAP * 8


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_common_prefix(one: list[int], other: list[int]) -> None:
    length = common(one, other)
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == len(one)


def asked(model: ScriptedLM, since: int = 0) -> list[list[tuple[int, list[int], int]]]:
    """The passes' requests: start, tokens, slots."""
    return [
        [(r.start, list(r.tokens), r.num_slots) for r in requests]
        for requests in model.passes[since:]
    ]


def saying_a(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    return scores_of([{A: 0.9, END: 0.1}] * num_slots)


def test_a_cache_slot_keeps_what_the_new_text_begins_with(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    bridged = BridgedLM(model, pair, 16)
    assert (bridged.capabilities.vocab_size, bridged.capabilities.prefix_kv) == (8, "none")
    # Before each pass one of a single slot, behind the text without its last piece.
    bridged.draft([BlockRequest(1, 0, [T_C, T_A, T_B, T_SPACE], 3)])
    assert asked(model) == [[(0, [C, AB], 1)], [(2, [SPACE], 3)]]
    # "cab " and "a" are read as "c", "ab" and " a": what the slot holds is right up to "ab".
    [scores] = bridged.draft([BlockRequest(1, 0, [T_C, T_A, T_B, T_SPACE, T_A], 2)])
    assert asked(model, 2) == [[(1, [AB], 1)], [(2, [SPACE_A], 2)]]
    assert scores.tokens[:, 0].tolist() == [T_A, T_A]
    # Another session in the slot; one whose text is a single token needs but one pass.
    bridged.draft([BlockRequest(1, 0, [T_C, T_C], 2), BlockRequest(0, 0, [T_C], 1)])
    assert asked(model, 4) == [[(0, [C], 1)], [(1, [C], 2), (0, [C], 1)]]


def test_a_text_with_nothing_to_read_begins_behind_the_end(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    BridgedLM(model, pair, 16).draft([BlockRequest(0, 0, [99], 1)])
    assert asked(model) == [[(0, [END], 1)]]


def test_a_long_text_is_fed_in_chunks_and_its_end_where_it_is_too_long(pair: Pair) -> None:
    model = ScriptedLM(saying_a)
    bridged = BridgedLM(model, pair, 16)
    bridged.draft([BlockRequest(0, 0, [T_C] * 40, 4)])
    fed = [(len(r.tokens), r.num_slots) for requests in model.passes for r in requests]
    assert fed == [(16, 0), (16, 0), (7, 1), (1, 4)]
    # 64 tokens are held: of 61 and 4 slots the first 32 are left out, and of 70, too.
    for length, left in ((61, 29), (70, 38)):
        bridged.draft([BlockRequest(0, 0, [T_C] * length, 4)])
        assert asked(model)[-1] == [(left - 1, [C], 4)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_text_that_ends_inside_a_token_goes_on_with_its_rest(pair: Pair, whole: bool) -> None:
    def script(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
        if prefix == (C,):
            likely, less = (AB, ABC) if whole else (ABC, AB)
            rows = [{likely: 0.5, less: 0.3, B: 0.1, END: 0.01}, {SPACE: 0.9, END: 0.1}]
        else:
            rows = [{B: 0.9, END: 0.1}, {C: 0.9, END: 0.1}]
        return scores_of(rows[:num_slots])

    model = ScriptedLM(script)
    [scores] = BridgedLM(model, pair, 16).draft([BlockRequest(0, 0, [T_C, T_A, T_B], 2)])
    if whole:
        assert asked(model) == [[(0, [C], 1)], [(1, [AB], 2)]]
        assert rows_of(scores)[0] == {T_BC: 0.9, T_END: 0.1}
    else:
        assert asked(model) == [[(0, [C], 1)], [(0, [C], 2)]]
        assert rows_of(scores) == [{T_C: 0.5, T_END: 0.01}, {T_SPACE: 0.9, T_END: 0.1}]


def test_the_last_piece_of_a_text() -> None:
    drafter, _ = two()
    for text, piece in (("sum(values", "values"), ("(größe", "größe"), ("x\n    ", "\n    ")):
        tokens = drafter.write(text.encode())
        count = drafter.last_piece(tokens)
        assert b"".join(drafter.spelling[token] for token in tokens[-count:]) == piece.encode()
    assert drafter.last_piece(drafter.write(b"values")) == 1


CONFIG = BlockCausalConfig(352, 32, 2, 48, edge_rank=8, max_position_embeddings=64, max_block=6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    BlockCausalDLM(CONFIG).save(tmp_path / "drafter")
    saved(trained(DRAFTERS_PATTERN, 330), tmp_path / "tokenizer")
    saved(trained(TARGETS_PATTERN, 300, "</s>"), tmp_path / "target", "</s>")
    return tmp_path


@pytest.mark.parametrize("proposal", list(Proposal))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_strategy_drafts_in_the_targets_tokens(
    folder: Path, proposal: Proposal, temperature: float
) -> None:
    target = folder / "target" / "tokenizer.json"
    engine = load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    prefix = tuple(Vocabulary(target).write(b"def mean(values):\n    re"))
    sampling = SamplingParams(temperature, seed=4)
    handle, opened = engine.open(DraftOpen("s", prefix, sampling, proposal, 60))
    model = opened.model
    assert (model.vocab_size, model.eos_token_ids, model.mask_token_id) == (300, (0,), None)
    for _ in range(3):
        [block] = engine.propose([(handle, asking("s", prefix, len(prefix), 5))])
        assert isinstance(block, DraftBlock)
        assert all(0 <= token < 300 for token in block.tokens)
        assert block.tokens or proposal is Proposal.LOOKUP


def test_the_targets_end_is_read_beside_its_tokenizer(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    (folder / "target" / "config.json").write_text('{"eos_token_id": 9}')
    (folder / "target" / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    engine = load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    assert engine.info.eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("broken", "content", "param"),
    [
        ("target/tokenizer.json", None, "target_tokenizer"),
        ("target/tokenizer.json", "[", "target_tokenizer"),
        ("target/tokenizer.json", "{}", "target_tokenizer"),
        ("target/tokenizer_config.json", None, "target_tokenizer"),
        ("target/tokenizer_config.json", '{"eos_token": "<none>"}', "target_tokenizer"),
        ("tokenizer/tokenizer.json", None, "tokenizer"),
        ("tokenizer/tokenizer.json", "{}", "tokenizer"),
    ],
)
def test_what_cannot_be_bridged_names_its_field(
    folder: Path, broken: str, content: str | None, param: str
) -> None:
    (folder / broken).unlink() if content is None else (folder / broken).write_text(content)
    target = folder / "target" / "tokenizer.json"
    with pytest.raises(ConfigError) as caught:
        load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))
    assert caught.value.param == param


def test_other_kinds_of_tokenizers_are_refused(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    raw = json.loads(target.read_text())
    target.write_text(
        json.dumps(raw | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}})
    )
    with pytest.raises(ConfigError, match="byte-level"):
        load_engine(DrafterConfig(model=folder / "drafter", target_tokenizer=target))


def test_a_table_of_the_drafters_own_tokens_is_refused(folder: Path) -> None:
    target = folder / "target" / "tokenizer.json"
    values = {"model": folder / "drafter", "target_tokenizer": target}
    config = DrafterConfig.model_validate(values | {"cps": {"scorer": {"static": 0.5}}})
    with pytest.raises(ConfigError) as caught:
        load_engine(config)
    assert caught.value.param == "cps.scorer.static"
