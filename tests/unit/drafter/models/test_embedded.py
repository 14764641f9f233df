"""The embedded family: caches, batches and candidates of a small random model."""

import numpy as np
import pytest
import torch

from drafter_service.models.embedded.linear import FloatLinear, Int8Linear
from drafter_service.models.port import BlockRequest
from tests.support.embedded_drafter import CONFIG, TEXT, fresh, model, same, served


@pytest.fixture
def drafter():
    return served(FloatLinear)


def test_candidates_are_the_best_normalised_over_the_vocabulary(drafter):
    scores = fresh(drafter, TEXT, 4)
    network = model()
    n = len(TEXT)

    def attend(_, q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        see = torch.ones(n + 4, n + 4, dtype=torch.bool)
        see[:n] = see[:n].tril()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, see).transpose(0, 1)

    with torch.inference_mode():
        hidden = network.forward_rows(
            torch.tensor(TEXT + [0] * 4),
            torch.arange(n + 4),
            torch.tensor([-1] * n + list(range(4))),
            attend,
        )[n:]
        logits = network.base_logits(hidden)
        logits[:, CONFIG.mask_token_id] = -torch.inf
        log_q = logits.log_softmax(-1)
        previous = torch.tensor([TEXT[-1], *scores.tokens[:3, 0].tolist()])
        edges = network.edge_logits(hidden, previous)
    assert scores.edge is not None
    for slot in range(4):
        tokens = scores.tokens[slot]
        assert scores.log_q[slot] == pytest.approx(log_q[slot, tokens].numpy(), abs=1e-4)
        best = log_q[slot].topk(7).indices.tolist()
        assert tokens[:7].tolist() == best
        assert CONFIG.eos_token_id in tokens
        assert CONFIG.mask_token_id not in tokens
        assert scores.edge[slot, 0] == pytest.approx(edges[slot, tokens].numpy(), abs=1e-4)
    assert (scores.edge[0] == scores.edge[0, :1]).all()


def test_cached_in_pieces_equals_fresh(drafter):
    drafter.draft([BlockRequest(0, 0, TEXT[:4], 0)])
    drafter.draft([BlockRequest(0, 4, TEXT[4:6], 5)])
    [scores] = drafter.draft([BlockRequest(0, 6, TEXT[6:], 3)])
    same(scores, fresh(drafter, TEXT, 3))


def test_cut_back_and_continued_equals_fresh(drafter):
    drafter.draft([BlockRequest(0, 0, [*TEXT[:5], 40, 41, 42], 6)])
    [scores] = drafter.draft([BlockRequest(0, 5, TEXT[5:], 3)])
    same(scores, fresh(drafter, TEXT, 3))


def test_a_batch_equals_one_by_one(drafter):
    drafter.draft([BlockRequest(0, 0, TEXT[:7], 0), BlockRequest(1, 0, TEXT[:2], 0)])
    batch = drafter.draft(
        [
            BlockRequest(0, 7, TEXT[7:], 3),
            BlockRequest(1, 2, [8], 5),
            BlockRequest(2, 0, TEXT[:3], 0),
        ]
    )
    assert [len(scores.tokens) for scores in batch] == [3, 5, 0]
    same(batch[0], fresh(drafter, TEXT, 3))
    same(batch[1], fresh(drafter, [*TEXT[:2], 8], 5))


def test_int8_stays_near():
    exact, small = served(FloatLinear), served(Int8Linear)
    a, b = fresh(exact, TEXT, 4, slot=0), fresh(small, TEXT, 4, slot=0)
    shared = np.isin(a.tokens[:, :3], b.tokens)
    assert shared.mean() > 0.8
