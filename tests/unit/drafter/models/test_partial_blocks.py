"""The embedded family conditioned on blocks of which some slots already hold tokens."""

from __future__ import annotations

import pytest
import torch

from drafter_service.models.embedded.linear import FloatLinear
from drafter_service.models.port import FILLED, BlockRequest
from tests.support.embedded_drafter import CONFIG, TEXT, fresh, model, same, served

N = len(TEXT)


@pytest.fixture
def drafter():
    return served(FloatLinear)


def test_masks_see_the_tokens_of_their_block(drafter):
    filled = (-1, 33, -1, 7)
    [scores] = drafter.draft([BlockRequest(0, 0, TEXT, 4, filled)])
    network = model()
    is_token = torch.tensor(filled) >= 0

    def attend(_, q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        see = torch.ones(N + 4, N + 4, dtype=torch.bool)
        see[:N] = see[:N].tril()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, see).transpose(0, 1)

    with torch.inference_mode():
        # A slot that holds a token is embedded as a committed one is; attend decides what it sees.
        slots = torch.where(is_token, -1, torch.arange(4))
        hidden = network.forward_rows(
            torch.tensor([*TEXT, *(max(t, 0) for t in filled)]),
            torch.arange(N + 4),
            torch.cat((torch.full((N,), -1), slots)),
            attend,
        )[N:]
        logits = network.base_logits(hidden)
        logits[:, CONFIG.mask_token_id] = -torch.inf
        log_q = logits.log_softmax(-1)
        edges = network.edge_logits(hidden[2:3], torch.tensor([33]))[0]
    for slot in (0, 2):
        tokens = scores.tokens[slot]
        assert scores.log_q[slot] == pytest.approx(log_q[slot, tokens].numpy(), abs=1e-4)
    # The token at slot 1 is its first candidate, so slot 2's first row of edges follows it.
    assert scores.edge[2, 0] == pytest.approx(edges[scores.tokens[2]].numpy(), abs=1e-4)


def test_a_filled_slots_scores_are_all_for_its_token(drafter):
    [scores] = drafter.draft([BlockRequest(0, 0, TEXT, 3, (33, -1, CONFIG.eos_token_id))])
    assert scores.tokens[[0, 2], 0].tolist() == [33, CONFIG.eos_token_id]
    assert scores.log_q[[0, 2], 0] == pytest.approx([0, 0])
    assert (scores.log_q[[0, 2], 1:] <= FILLED).all()
    for row in scores.tokens.tolist():
        assert len(set(row)) == len(row)
        assert CONFIG.eos_token_id in row and CONFIG.mask_token_id not in row


def test_a_block_without_tokens_is_one_of_masks_and_leaves_no_trace(drafter):
    drafter.draft([BlockRequest(0, 0, TEXT[:6], 4, (33, 9, -1, 8))])
    [scores] = drafter.draft([BlockRequest(0, 6, TEXT[6:], 3, (-1, -1, -1))])
    same(scores, fresh(drafter, TEXT, 3))


def test_a_batch_with_tokens_equals_one_by_one(drafter):
    requests = [
        BlockRequest(0, 0, TEXT[:5], 3, (-1, 12, -1)),
        BlockRequest(1, 0, TEXT, 2),
        BlockRequest(2, 0, TEXT[:7], 2, (50, -1)),
    ]
    batch = drafter.draft(requests)
    for scores, request in zip(batch, requests, strict=True):
        [alone] = drafter.draft([BlockRequest(3, 0, *_rest(request))])
        assert scores.tokens[:, 0].tolist() == alone.tokens[:, 0].tolist()
        assert scores.log_q == pytest.approx(alone.log_q, abs=1e-4)


def _rest(request):
    return request.tokens, request.num_slots, request.filled
