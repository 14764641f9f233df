"""Features that a drafter can do without: which tokens they help, and what is read again."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_service.feature_store import HelpfulFeatures
from drafter_service.models.compiled.drafter import NativeDrafter
from drafter_service.models.embedded.drafter import EmbeddedDrafter
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.linear import FloatLinear
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.lattice import BlockScores
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import InvalidRequest
from foredraft.features.fusion import Fusion
from foredraft.features.wire import size
from foredraft.types import Base, DraftBlock, Propose
from tests.support.drafters import ScriptedLM, counting, engine_of, opening
from tests.unit.kernels.test_native_drafter import CACHE, CONFIG, ISAS, KERNELS, TEXT, network, same

WIDTH = CONFIG.hidden_size
FUSION = Fusion((0,), WIDTH, 1e-5, "f")
NUMBERS = (np.random.default_rng(1).normal(size=(100, WIDTH)) * 0.5).astype(np.float32)
FEATURES = torch.from_numpy(NUMBERS).bfloat16()


def told(start: int, end: int) -> bytes:
    """The features of the text's tokens [start, end)."""
    return FEATURES[start:end].view(torch.int16).numpy().tobytes()


def on_torch(candidates: int = 8) -> EmbeddedDrafter:
    fused = FusedBlockCausal(network(), FloatLinear)
    return EmbeddedDrafter(fused, CACHE, candidates, torch.float32, FUSION)


def compiled(isa: str, candidates: int = 8) -> NativeDrafter:
    return NativeDrafter(network(), CACHE, candidates, KERNELS, isa, FUSION)


DRAFTERS = [on_torch, *(partial(compiled, isa) for isa in ISAS)]


def one(drafter: DiffusionLM, request: BlockRequest) -> BlockScores:
    [scores] = drafter.draft([request])
    return scores


# The store.


def test_a_token_is_told_of_the_one_before_it_and_zeros_stand_for_what_is_not_known() -> None:
    store = HelpfulFeatures(2, 3)
    assert store.of(0, 9) == b""
    assert store.assign(6, 5, b"abcdefgh") == 4
    # Tokens 3 and 4 have some; they help to read 4 and 5.
    assert store.of(0, 4) == b"" and store.of(6, 9) == b""
    assert store.of(3, 7) == bytes(4) + b"abcdefgh" + bytes(4)
    assert store.of(5, 6) == b"efgh"
    assert store.known(20) == 20


def test_what_was_read_without_is_read_again() -> None:
    store = HelpfulFeatures(1, 3)
    assert store.assign(4, 8, b"") == 9
    # Those of 3, 4 and 5 come late: of what is cached, tokens 0 to 3 are right.
    assert store.assign(8, 8, b"334455") == 4
    assert store.assign(9, 9, b"") == 10
    # A text that goes another way from token 5 on.
    assert store.assign(5, 7, b"6677") == 6
    assert store.of(4, 8) == b"33446677"


@pytest.mark.parametrize("data", [b"12345", b"11223344", b"\x80\x7f"])
def test_features_that_do_not_fit_are_refused(data: bytes) -> None:
    store = HelpfulFeatures(1, 3)
    store.assign(4, 5, b"33")
    with pytest.raises(InvalidRequest) as refused:
        store.assign(4, 6, data)
    assert refused.value.param == "features"
    assert store.of(4, 6) == b"33" + bytes(2)


# The models.


@pytest.mark.parametrize("make", DRAFTERS)
def test_zeros_are_as_good_as_none_and_numbers_are_not(make: Callable[[], DiffusionLM]) -> None:
    drafter = make()
    without = one(drafter, BlockRequest(0, 0, TEXT[:20], 5))
    zeros = one(drafter, BlockRequest(1, 0, TEXT[:20], 5, features=bytes(size(20, WIDTH))))
    same(without, zeros)
    other = one(drafter, BlockRequest(2, 0, TEXT[:20], 5, features=told(0, 20)))
    assert not np.array_equal(without.log_q, other.log_q)


@pytest.mark.skipif(not ISAS, reason="not built, or not for this CPU")
def test_compiled_it_is_near_fp32() -> None:
    exact = one(on_torch(32), BlockRequest(0, 0, TEXT[:40], 9, features=told(0, 40)))
    found = [
        one(compiled(isa, 32), BlockRequest(0, 0, TEXT[:40], 9, features=told(0, 40)))
        for isa in ISAS
    ]
    for near in found:
        same(near, found[0])
        for slot in range(9):
            _, i, j = np.intersect1d(exact.tokens[slot], near.tokens[slot], return_indices=True)
            assert np.abs(exact.log_q[slot, i] - near.log_q[slot, j]).mean() < 0.08


@pytest.mark.parametrize("make", DRAFTERS)
def test_a_pass_may_hold_texts_with_and_without(make: Callable[[], DiffusionLM]) -> None:
    drafter = make()
    some = BlockRequest(0, 0, TEXT[:9], 4, features=told(0, 9))
    none = BlockRequest(1, 0, TEXT[:7], 3)
    # torch's products may round a row by what shares its pass.
    for got, alone in zip(drafter.draft([none, some]), (none, some), strict=True):
        expected = one(drafter, replace(alone, slot=2))
        assert np.array_equal(got.tokens[:, 0], expected.tokens[:, 0])
        np.testing.assert_allclose(got.log_q, expected.log_q, atol=1e-4)


@pytest.mark.skipif(not ISAS, reason="not built, or not for this CPU")
def test_features_of_another_length_never_reach_c() -> None:
    with pytest.raises(ValueError, match="bounds"):
        compiled(ISAS[0]).draft([BlockRequest(0, 0, TEXT[:3], 1, features=told(0, 2))])


# The engine.


class ReadingLM(ScriptedLM):
    """Keeps what it was told of each token that it holds."""

    def __init__(self, slots: int) -> None:
        super().__init__(counting, slots=slots)
        self.read: dict[int, list[bytes]] = {}
        self.capabilities = replace(
            self.capabilities, features_hash="f", features_width=1, features_optional=True
        )

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        for r in requests:
            told = r.features or bytes(2 * len(r.tokens))
            parts = [told[at : at + 2] for at in range(0, len(told), 2)]
            assert len(parts) == len(r.tokens)
            self.read[r.slot] = [*self.read.get(r.slot, [])[: r.start], *parts]
        return super().draft(requests)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 4]))
def test_behind_a_committed_text_all_that_is_known_was_read(seed: int, slots: int) -> None:
    rng = random.Random(seed)
    model = ReadingLM(slots)
    engine = engine_of(model, prefill_rows=5)
    texts, handles = {}, {}
    for name in ("a", "b"):
        texts[name] = [1 + rng.randrange(15) for _ in range(rng.randrange(2, 9))]
        request = replace(opening(name, texts[name]), features_from=len(texts[name]) - 1)
        handles[name] = (engine.open(request)[0], len(texts[name]) - 1)
    sent = {name: first for name, (_, first) in handles.items()}
    named = {name: list(text) for name, text in texts.items()}

    def propose(name: str, text: list[int], features: bytes) -> None:
        pairs = zip(named[name], text, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        named[name] = list(text)
        base = Base(name, 0, len(text), hash_prefix(text))
        [block] = engine.propose(
            [(handles[name][0], Propose(base, same, tuple(text[same:]), 2, features))]
        )
        assert isinstance(block, DraftBlock)

    for _ in range(30):
        name = rng.choice("ab")
        text, first = texts[name], handles[name][1]
        if rng.random() < 0.4:
            # Ahead of what is committed, of which nothing more is known.
            propose(name, [*text, *(1 + rng.randrange(15) for _ in range(3))], b"")
            continue
        if len(text) < 50:
            text += [1 + rng.randrange(15) for _ in range(rng.randrange(3))]
        end = rng.choice([sent[name], len(text) - 1])
        propose(name, text, b"".join(bytes([text[at], 0]) for at in range(sent[name], end)))
        sent[name] = end
        expected = [bytes([text[at - 1] if first < at <= end else 0, 0]) for at in range(len(text))]
        assert expected in [read[: len(text)] for read in model.read.values()]
