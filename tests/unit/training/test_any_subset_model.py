"""The two streams: what each row sees, bit for bit, and the folder on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foredraft.layout import Layout
from training.any_subset import model as any_subset
from training.any_subset.layouts import (
    HOLE_RATES,
    LAST_RATES,
    MOST_HOLES,
    MaskRates,
    Order,
    given_counts,
    in_holes,
    mask_rates,
    orders,
    scattered,
    with_layouts,
)
from training.any_subset.model import AnySubsetModel, export_any_subset, load_any_subset
from training.corpus.tokenizer import MASK_ID
from training.embedded.target_model import TargetModel, TargetShape

LENGTH = 12
SHAPE = TargetShape(vocab=64, hidden=32, layers=2, heads=2, intermediate=48, max_positions=LENGTH)
LAYOUTS = [Layout(LENGTH, given) for given in ((0,), (3, 4, 9), (1, 5, 6, 7, 8, 11), (0, 1, 2))]


@pytest.fixture
def model() -> AnySubsetModel:
    return AnySubsetModel(TargetModel(SHAPE, seed=1))


def placed(layout: Layout) -> tuple[Tensor, Tensor]:
    """A layout as the model takes it: orders [1, length] and given [1]."""
    order = np.argsort(layout.positions)
    return torch.from_numpy(order)[None], torch.tensor([len(layout.given)])


def changed(tokens: Tensor, layout: Layout, order: int) -> Tensor:
    """The text with another token at each place from `order` on."""
    other = tokens.clone()
    at = list(layout.positions[order:])
    other[0, at] = (tokens[0, at] + 7) % SHAPE.vocab
    return other


@torch.inference_mode()
def leaks(model: AnySubsetModel, layout: Layout) -> list[str]:
    """What the rows see that they must not: empty if the two streams are right."""
    tokens = torch.randint(0, SHAPE.vocab, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    order, given = placed(layout)
    content, asked = model.streams(tokens, order, given)
    found = []
    for place in range(len(layout.given), LENGTH):
        after, also = model.streams(changed(tokens, layout, place), order, given)
        position = layout.positions[place]
        if not torch.equal(also[0, position], asked[0, position]):
            found.append(f"query {place}")
        known = list(layout.positions[:place])
        if not torch.equal(after[0, known], content[0, known]):
            found.append(f"content before {place}")
    return found


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_row_sees_what_comes_later_by_a_single_bit(
    model: AnySubsetModel, layout: Layout
) -> None:
    assert leaks(model, layout) == []


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@torch.inference_mode()
def test_every_row_sees_all_that_comes_earlier(model: AnySubsetModel, layout: Layout) -> None:
    tokens = torch.randint(0, SHAPE.vocab, (1, LENGTH))
    order, given = placed(layout)
    content, asked = model.streams(tokens, order, given)
    for seen in range(LENGTH - 1):
        other = tokens.clone()
        other[0, layout.positions[seen]] = (tokens[0, layout.positions[seen]] + 7) % SHAPE.vocab
        after, also = model.streams(other, order, given)
        rows = range(max(seen + 1, len(layout.given)), LENGTH)
        assert all(
            not torch.equal(also[0, p], asked[0, p])
            for p in [layout.positions[order] for order in rows]
        )
        # The prompt's rows see the later ones of the prompt, too.
        first = 0 if seen < len(layout.given) else seen
        rows = range(first, LENGTH)
        assert all(
            not torch.equal(after[0, p], content[0, p])
            for p in [layout.positions[order] for order in rows]
        )


def query_sees_its_token(order: Tensor, given: Tensor) -> Tensor:
    sees = right(order, given)
    sees[:, order.shape[1] :, : order.shape[1]] |= torch.eye(order.shape[1], dtype=torch.bool)
    return sees


def prompt_sees_everything(order: Tensor, given: Tensor) -> Tensor:
    sees = right(order, given)
    sees[:, : order.shape[1], : order.shape[1]] |= (order < given[:, None])[:, :, None]
    return sees


def by_position(order: Tensor, given: Tensor) -> Tensor:
    """Left to right whatever the layout, as if position were order."""
    return right(torch.arange(order.shape[1]).expand_as(order), torch.ones_like(given))


right = any_subset.visible


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (query_sees_its_token, "query"),
        (prompt_sees_everything, "content"),
        (by_position, "content"),
    ],
)
def test_planted_masks_are_found(
    model: AnySubsetModel,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Tensor, Tensor], Tensor],
    seen: str,
) -> None:
    monkeypatch.setattr(any_subset, "visible", fault)
    assert any(seen in leak for leak in leaks(model, LAYOUTS[1]))


@torch.inference_mode()
def test_the_joint_is_the_product_of_what_is_asked_one_by_one(model: AnySubsetModel) -> None:
    """Eq. 2: one pass over a text gives what decoding it token by token gives."""
    layout = LAYOUTS[1]
    order, given = placed(layout)
    tokens = torch.randint(0, SHAPE.vocab, (1, LENGTH))
    total = 0.0
    for place in range(len(layout.given), LENGTH):
        position = layout.positions[place]
        unknown = changed(tokens, layout, place)
        row = model.logits(unknown, order, given)[0, position]
        total += float(F.cross_entropy(row, tokens[0, position]))
    assert float(model(tokens, order, given)) == pytest.approx(total, rel=1e-5)


def test_an_exported_model_is_read_back(model: AnySubsetModel, tmp_path: Path) -> None:
    export_any_subset(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["any_subset"] == {"mask_token_id": MASK_ID}
    assert config["max_position_embeddings"] == LENGTH
    again = load_any_subset(tmp_path)
    tokens = torch.randint(0, SHAPE.vocab, (1, LENGTH))
    order, given = placed(LAYOUTS[1])
    theirs, ours = again(tokens, order, given), model(tokens, order, given)
    torch.testing.assert_close(theirs, ours, rtol=1e-2, atol=0)
    assert load_any_subset(tmp_path, 40).network.shape.max_positions == 40


def test_batches_have_layouts_of_equation_4() -> None:
    random = np.random.default_rng(0)
    given = given_counts(random, 16, 100, MaskRates(0.90, 0.99))
    assert given.min() >= 1 and given.max() <= 10 and len(set(given.tolist())) > 5
    masked = scattered(random, given, 100)
    assert (100 - masked.sum(axis=1) == given).all()
    for row, m in zip(orders(random, masked, Order.LATTICE), given, strict=True):
        positions = np.argsort(row)
        prompt = tuple(int(at) for at in positions[:m])
        assert Layout(100, prompt).positions == tuple(positions.tolist())
    placed = orders(random, masked, Order.ANY)
    assert ((placed >= given[:, None]) == masked).all()
    assert all(sorted(row) == list(range(100)) for row in placed.tolist())
    assert any(list(np.argsort(row)[m:]) != sorted(np.argsort(row)[m:])
               for row, m in zip(placed, given, strict=True))  # fmt: skip


def test_holes_are_few_and_as_long_as_asked() -> None:
    given = given_counts(np.random.default_rng(0), 200, 40, MaskRates(0.02, 0.98))
    masked = in_holes(np.random.default_rng(1), given, 40)
    assert (40 - masked.sum(axis=1) == given).all()
    runs = (np.diff(masked.astype(int), axis=1, prepend=0) == 1).sum(axis=1)
    assert runs.min() == 1 and runs.max() == MOST_HOLES
    assert 0 < masked[:, 0].mean() < 0.9 and 0 < masked[:, -1].mean() < 0.9


@pytest.mark.parametrize("holes", [0.0, 0.5, 1.0])
def test_the_share_of_texts_with_holes(holes: float) -> None:
    texts = torch.arange(16)[:, None].expand(16, 100)
    batch = with_layouts(texts, np.random.default_rng(2), LAST_RATES, Order.LATTICE, holes)
    masked = batch.order.numpy() >= batch.given.numpy()[:, None]
    runs = (np.diff(masked.astype(int), axis=1, prepend=0) == 1).sum(axis=1)
    most = batch.given.numpy() >= 100 * (1 - HOLE_RATES.high)
    assert most.sum() == 16 * holes and (runs[most] <= MOST_HOLES).all()


def test_prompt_lengths_are_stratified() -> None:
    for seed in range(20):
        given = given_counts(np.random.default_rng(seed), 8, 100, MaskRates(0.1, 0.9))
        middles = 10 + 80 * (np.arange(8) + 0.5) / 8
        # Half of a stratum's ten tokens, and rounding.
        assert (abs(np.sort(given) - middles) <= 5.5).all()


def test_masking_begins_low_and_rises() -> None:
    last = MaskRates(0.90, 0.99)
    assert mask_rates(last, 0.0, 0.1) == MaskRates(0.15, 0.15)
    half = mask_rates(last, 0.05, 0.1)
    assert [half.low, half.high] == pytest.approx([0.525, 0.57])
    assert mask_rates(last, 0.1, 0.1) == mask_rates(last, 0.0, 0.0) == last
