"""Fused features that verdicts tell: those of the committed text, whatever happens to its KV."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from drafter_service.model.block_causal import BlockCausalConfig, BlockCausalDLM
from foredraft.errors import ConfigError, InvalidRequest, Overloaded, WeightsError
from foredraft.features import size
from foredraft.fusion import read_fusion
from foredraft.prefix import hash_prefix
from foredraft.types import SamplingParams, Verdict, VerifyOpen
from foredraft_kernels.loader import load_kernels, supported_isas
from tests.unit.dflash_pair import HIDDEN, VOCAB, as_tensor, fused, write_drafter, write_target
from tests.unit.verifier.scripted import BLOCK, RandomModel, make_engine, opening, round_after
from verifier_service.config import FeaturesConfig, VerifierConfig
from verifier_service.engine import VerifierEngine
from verifier_service.loading import load_engine, load_target
from verifier_service.model.fused import FusedModel
from verifier_service.model.hf import TransformersForward
from verifier_service.model.native_forward import NativeForward
from verifier_service.model.port import Segment

WIDTH = 2
KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "bf16") if KERNELS else []


def features_of(text: Sequence[int], start: int = 0) -> bytes:
    """What the scripted model tells of a text's tokens: each one, and the text up to it."""
    rows = [(text[at], hash_prefix(text[: at + 1]) & 0x3FFF) for at in range(start, len(text))]
    return np.array(rows, dtype=np.uint16).tobytes()


class TellingModel(RandomModel):
    """Its features say what each row saw."""

    def __init__(self) -> None:
        super().__init__(vocab=4)
        self.info = replace(self.info, features_hash="f", features_width=WIDTH)

    def forward_fused(
        self, segments: Sequence[Segment], rows: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        logits = self.forward(segments)
        every = []
        for segment in segments:
            count = segment.start + len(segment.tokens)
            text, root = self.text(segment.blocks, count), count - len(segment.parents)
            for row in range(segment.start, count):
                seen = text[: min(row + 1, root)]
                node = row - root
                branch: list[int] = []
                while node >= 0:
                    branch.insert(0, text[root + node])
                    node = segment.parents[node]
                every.append([text[row], hash_prefix([*seen, *branch]) & 0x3FFF])
        return logits, np.array(every, dtype=np.uint16)[list(rows)]


def asking(prefix: Sequence[int], told: int = 0, **fields: object) -> VerifyOpen:
    asked = opening(prefix, new=40)
    return replace(asked, features_hash="f", features_from=told, **fields)  # type: ignore[arg-type]


def finish(engine: VerifierEngine) -> dict[int, Verdict]:
    results = {}
    while engine.has_work:
        results.update(engine.step())
    return results


def test_the_first_verdict_tells_of_the_prefix_and_later_ones_of_what_was_committed() -> None:
    engine, text = make_engine(TellingModel(), prefill_rows=7), [1, 2, 3, 1, 2] * 5
    handle = engine.open(asking(text))
    told = b""
    for number, draft in enumerate(((), (1, 2), (3, 0, 1), (), (2,))):
        engine.submit(handle, round_after(text, draft, number=number, steps=3))
        verdict = finish(engine)[handle]
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        told += verdict.features
        assert told == features_of(text[:-1])


def test_other_features_than_it_has_are_not_told() -> None:
    for model, name in ((TellingModel(), "g"), (TellingModel(), ""), (RandomModel(vocab=4), "f")):
        engine = make_engine(model)
        handle = engine.open(replace(asking([1, 2]), features_hash=name))
        engine.submit(handle, round_after([1, 2]))
        assert finish(engine)[handle].features == b""


def test_kv_is_shared_only_of_text_whose_features_are_not_asked_for() -> None:
    model = TellingModel()
    engine, text = make_engine(model), [1, 2, 3, 0] * BLOCK
    first = engine.open(opening(text))
    engine.submit(first, round_after(text))
    finish(engine)
    for told, shared in ((0, 0), (2 * BLOCK + 3, 2 * BLOCK), (len(text) - 1, 3 * BLOCK)):
        before = engine.kv.shared_tokens
        handle = engine.open(asking(text, told))
        engine.submit(handle, round_after(text))
        assert finish(engine)[handle].features == features_of(text, told)
        assert engine.kv.shared_tokens - before == shared
        engine.close(handle)


def test_how_many_are_not_asked_for_is_checked() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_engine(TellingModel()).open(asking([1, 2], told=3))
    assert refused.value.param == "features_from"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 3.0]), st.sampled_from([0, 3]))
def test_whatever_happens_each_committed_token_is_told_of_once(
    seed: int, overcommit: float, ahead: int
) -> None:
    rng = random.Random(seed)
    sampling = SamplingParams(temperature=0.9, seed=5)
    engine = make_engine(
        TellingModel(),
        kv_tokens=10 * BLOCK,
        overcommit=overcommit,
        idle_steps=ahead,
        prefill_rows=rng.choice([5, 16, 40]),
    )
    beginning = [rng.randrange(4) for _ in range(50)]
    texts: dict[int, list[int]] = {}
    told: dict[int, int | None] = {}
    asked: dict[int, tuple[int, ...]] = {}
    ends: dict[int, int] = {}
    for number in range(100):
        if len(texts) < 5 and rng.random() < 0.2:
            prefix = beginning[: rng.randrange(1, 50)]
            held = rng.randrange(len(prefix))
            telling = rng.random() < 0.7
            request = replace(asking(prefix, held), sampling=sampling)
            try:
                handle = engine.open(request if telling else opening(prefix, new=40))
            except Overloaded:
                continue
            texts[handle], told[handle] = list(prefix), held if telling else None
            ends[handle] = len(prefix) + 25
        for handle, text in list(texts.items()):
            if len(text) > ends[handle] or rng.random() < 0.03:
                engine.close(handle)
                asked.pop(handle, None)
                del texts[handle]
            elif handle not in asked and rng.random() < 0.6:
                draft = tuple(rng.randrange(4) for _ in range(rng.randrange(6)))
                parents = [rng.randrange(-1, node) for node in range(len(draft))]
                engine.submit(handle, round_after(text, draft, parents, number=number, steps=3))
                asked[handle] = draft
        if engine.has_work:
            for handle, verdict in engine.step():
                assert isinstance(verdict, Verdict)
                draft, text = asked.pop(handle), texts[handle]
                text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
                start = told[handle]
                if start is None:
                    assert verdict.features == b""
                else:
                    assert verdict.features == features_of(text[:-1], start)
                    told[handle] = len(text) - 1
        else:
            engine.decode_on()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return target, folder / "drafter", write_drafter(folder / "drafter")


def config_of(target: Path, drafter: Path, **fields: object) -> VerifierConfig:
    features = FeaturesConfig(model=drafter)
    return VerifierConfig(model=target, features=features, kv_tokens=2048, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_checkpoints_features_are_those_of_transformers(
    pair: tuple[Path, Path, dict[str, torch.Tensor]], dtype: str
) -> None:
    target, drafter, weights = pair
    model = load_target(config_of(target, drafter, dtype=dtype))
    assert isinstance(model, FusedModel)
    assert model.info.features_hash == read_fusion(drafter).hash
    text = [3 + 7 * i % 19 for i in range(40)]
    blocks = model.pool.take(1)
    whole, rest = Segment(blocks, 0, text[:30], 1), Segment(blocks, 30, text[30:], 10)
    logits, first = model.forward_fused([whole], range(30))
    more, second = model.forward_fused([rest], range(2, 10))
    found = as_tensor(first.tobytes() + second.tobytes())
    expected = fused(target, weights, text)[[*range(30), *range(32, 40)]]
    exact = dtype == "fp32"
    torch.testing.assert_close(
        found, expected, atol=1e-3 if exact else 0.3, rtol=2**-7 if exact else 0.1
    )
    again = np.concatenate([model.forward([whole]), model.forward([rest])])
    assert np.array_equal(np.concatenate([logits, more]), again)
    assert found.shape[1] == HIDDEN and logits.shape == (1, VOCAB)


def test_a_fusion_for_another_target_is_refused(
    pair: tuple[Path, Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    target, drafter, _ = pair
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCAB, hidden_size=64, intermediate_size=32, **sizes)
    ).save_pretrained(tmp_path / "wide")
    with pytest.raises(WeightsError, match=r"fc\.weight is \[32, 64\].*\[32, 128\]"):
        load_target(config_of(tmp_path / "wide", drafter))
    layers = {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 3]}}
    write_drafter(tmp_path / "deep", **layers)
    with pytest.raises(WeightsError, match="target_layer_ids"):
        load_target(config_of(target, tmp_path / "deep"))
    with pytest.raises(WeightsError, match="no fusion"):
        load_target(config_of(target, target))
    with pytest.raises(ConfigError) as refused:
        load_target(config_of(target, drafter, tensor_parallel=2))
    assert refused.value.param == "features"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target that the compiled forward takes, and an embedded drafter that reads its states."""
    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=64, initializer_range=0.3, **sizes
        )
    ).save_pretrained(folder / "target")
    model = BlockCausalDLM(BlockCausalConfig(96, 64, 2, 64, target_layer_ids=(0, 2)))
    torch.nn.init.normal_(model.hidden_norm.weight)
    model.save(folder / "drafter")
    return folder / "target", folder / "drafter"


@pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")
def test_the_compiled_forward_tells_what_that_of_transformers_does(
    small: tuple[Path, Path],
) -> None:
    target, drafter = small
    compiled = load_target(config_of(target, drafter, threads=2))
    slow = load_target(config_of(target, drafter, forward="transformers"))
    plain = load_target(VerifierConfig(model=target, kv_tokens=2048))
    assert isinstance(compiled, FusedModel) and isinstance(compiled.passes, NativeForward)
    assert compiled.info.features_hash == read_fusion(drafter).hash
    text = [5 + 7 * i % 89 for i in range(40)]
    parents = (-1, 0, -1, 2)
    found = []
    for model in (compiled, slow):
        assert isinstance(model, FusedModel)
        one, two = model.pool.take(1), model.pool.take(1)
        model.forward_fused([Segment(one, 0, text[:30], 1)], [])
        segments = [Segment(two, 0, text[:3], 1), Segment(one, 30, text[30:], 5, parents)]
        logits, features = model.forward_fused(segments, [0, 2, *range(5, 13)])
        again = model.forward(segments)
        assert np.array_equal(logits, again)
        found.append(as_tensor(features.tobytes(), 64))
    blocks = plain.pool.take(1), plain.pool.take(1)
    plain.forward([Segment(blocks[0], 0, text[:30], 1)])
    segments = [Segment(blocks[1], 0, text[:3], 1), Segment(blocks[0], 30, text[30:], 5, parents)]
    assert np.array_equal(compiled.forward_fused(segments, [1])[0], plain.forward(segments))
    torch.testing.assert_close(found[0], found[1], atol=0.15, rtol=0.1)
    assert found[0].abs().mean() > 0.3


@pytest.mark.skipif(not ISAS, reason="the compiled forward does not run here")
@pytest.mark.parametrize(
    ("rows", "layers", "what"),
    [([3], (0,), "row"), ([-1], (0,), "row"), ([0], (2, 0), "layers"), ([0], (3,), "layers")],
)
def test_what_cannot_be_told_of_never_reaches_c(
    small: tuple[Path, Path], rows: list[int], layers: tuple[int, ...], what: str
) -> None:
    model = load_target(config_of(*small))
    assert isinstance(model.passes, NativeForward)
    flat = model.flat([Segment(model.pool.take(1), 0, [5, 6, 7], 1)])
    with pytest.raises(ValueError, match=what):
        model.passes.told(flat, rows, layers)


def test_of_the_last_layer_transformers_forward_tells(
    small: tuple[Path, Path], tmp_path: Path
) -> None:
    model = BlockCausalDLM(BlockCausalConfig(96, 64, 2, 64, target_layer_ids=(3,)))
    model.save(tmp_path)
    assert isinstance(load_target(config_of(small[0], tmp_path)).passes, TransformersForward)


def test_an_engine_tells_them_with_its_first_verdict(
    pair: tuple[Path, Path, dict[str, torch.Tensor]],
) -> None:
    target, drafter, _ = pair
    engine = load_engine(config_of(target, drafter, dtype="bf16"))
    assert isinstance(engine.model, FusedModel)
    handle = engine.open(replace(asking([5, 6, 7]), features_hash=read_fusion(drafter).hash))
    engine.submit(handle, round_after([5, 6, 7]))
    verdict = finish(engine)[handle]
    assert len(verdict.features) == size(3, HIDDEN)
