"""Drafts as the paper ranks and prunes them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.spiffy.printed import PrintedDrafting, log_scores
from denoiser_service.core.graph import Candidate, DraftGraph, Node, RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.ranks import Anchor, Ranks
from foredraft.decoding.block_state import MASKED as M
from foredraft.denoising import Dynamic, Static

P = np.array([[0.1, 0.2, 0.7], [0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.05, 0.9, 0.05]])
ANCHOR = Anchor.of((M, M, M, 2), np.log(P).astype(np.float32), 0)


def graph(*formulas):
    nodes = [frozenset(Candidate(*pair) for pair in pairs) for pairs in formulas]
    return DraftGraph(tuple(Node(each, len(each), 1) for each in nodes))


CHAIN = graph([(1, 1)], [(1, 1), (2, 1)], [(1, 1), (2, 1), (3, 1)], [(9, 1)])


def test_scores_are_geometric_means_of_a_node_and_its_children():
    ranks = Ranks(ANCHOR, Rule(Static(1)), RankedBy.GREEDY)
    scores = log_scores(CHAIN, [ranks.draft(node.formula) for node in CHAIN.nodes])
    local = [0.8, math.sqrt(0.8 * 0.7), (0.8 * 0.7 * 0.4) ** (1 / 3)]
    expected = [
        math.sqrt(local[0] * math.sqrt(local[1] * local[2])),
        math.sqrt(local[1] * local[2]),
        local[2],
        0.0,
    ]
    assert np.exp(scores) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nodes_are_kept_by_score_where_a_step_leads_to_them(temperature):
    def drafted(budget, unmasking, full=False):
        drafting = PrintedDrafting(CHAIN, Rule(unmasking, temperature), budget)
        return [guess.state for guess in drafting(ANCHOR._replace(full=full))]

    one, two, three = (M, 0, M, 2), (2, 0, M, 2), (2, 0, 1, 2)
    assert drafted(1, Static(1)) == [one]
    assert drafted(5, Static(1)) == [one, two]
    assert drafted(5, Static(2)) == [two]
    assert drafted(5, Dynamic(), full=True) == [one, two, three]
