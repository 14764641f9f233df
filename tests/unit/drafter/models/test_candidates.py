"""Which tokens of a slot are candidates: the likeliest, or those that the noise makes likeliest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from drafter_service.models.candidates import block_scores
from drafter_service.models.port import BlockRequest
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams

VOCAB, COUNT, MASK, EOS = 500, 12, 7, 3
SAMPLING = SamplingParams(0.8, seed=11)


def logits(rows: int, spread: float = 2.0) -> torch.Tensor:
    return spread * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(rows))


def asked(slots: int, sampling: SamplingParams = SAMPLING, start: int = 4) -> BlockRequest:
    return BlockRequest(0, start, (1, 2), slots, sampling=sampling)


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
def test_above_temperature_0_they_are_those_that_the_noise_makes_likeliest(
    temperature: float,
) -> None:
    r, given = asked(9, SamplingParams(temperature, seed=2**63 - 1)), logits(9)
    [scores] = block_scores(given.clone(), [r], COUNT, MASK, EOS)
    given[:, MASK] = -torch.inf
    log_q = torch.log_softmax(given, dim=-1).numpy()
    noise = gumbel(r.sampling.seed, np.arange(6, 15), np.arange(VOCAB))
    for slot in range(9):
        noisy = log_q[slot] / temperature + noise[slot]
        noisy[EOS] = np.inf
        assert set(scores.tokens[slot].tolist()) == set(np.argsort(-noisy)[:COUNT].tolist())
        assert scores.log_q[slot] == pytest.approx(log_q[slot, scores.tokens[slot]], abs=1e-5)
        assert (np.diff(scores.log_q[slot]) <= 0).all()


def test_each_request_of_a_pass_has_its_own_noise() -> None:
    requests = [asked(2), asked(3, SamplingParams()), asked(4, SamplingParams(1.0, seed=5), 9)]
    together = block_scores(logits(9), requests, COUNT, MASK, EOS)
    rows = logits(9).split([2, 3, 4])
    for found, r, part in zip(together, requests, rows, strict=True):
        [alone] = block_scores(part.clone(), [r], COUNT, MASK, EOS)
        assert (found.tokens == alone.tokens).all()
        assert found.log_q == pytest.approx(alone.log_q, abs=1e-6)
    plain = torch.log_softmax(logits(9), dim=-1)[2:5].argmax(dim=1)
    assert (together[1].tokens[:, 0] == plain.numpy()).all()


def test_a_filled_slot_keeps_its_token() -> None:
    r = BlockRequest(0, 0, (1,), 3, (-1, 42, -1), sampling=SAMPLING)
    [scores] = block_scores(logits(3), [r], COUNT, MASK, EOS)
    assert scores.tokens[1, 0] == 42 and scores.log_q[1, 0] == pytest.approx(0.0)


def test_a_draw_is_a_candidate_more_often_than_without_noise() -> None:
    """What the target draws from the same logits is always one; by q alone it is often none."""
    given = logits(200, 1.0)
    log_q = torch.log_softmax(given, dim=-1).numpy()
    noise = gumbel(SAMPLING.seed, np.arange(6, 206), np.arange(VOCAB))
    drawn = (log_q / SAMPLING.temperature + noise).argmax(1)

    def share(sampling: SamplingParams) -> float:
        [scores] = block_scores(given.clone(), [asked(200, sampling)], COUNT, None, EOS)
        return float((scores.tokens == drawn[:, None]).any(1).mean())

    assert share(SAMPLING) == 1.0
    assert share(SamplingParams()) < 0.6
