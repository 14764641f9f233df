"""Graphs from decoded texts, by hand and by brute force, and their file."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from denoiser_service.core.calibrate import Counts, choose, is_connected
from denoiser_service.core.decode import GraphDrafting, speculative, vanilla
from denoiser_service.core.graph import Candidate, DraftGraph, Node, RankedBy
from denoiser_service.core.graph_file import CalibrationFields, from_json, hash_fields, to_json
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from foredraft.decoding.block_state import MASKED
from foredraft.denoising import Dynamic, Static
from foredraft.errors import ConfigError
from foredraft.strict import parse
from tests.support.denoiser.tabular import TEXT, Scripted, Tabular


def formula(*pairs):
    return frozenset(Candidate(*pair) for pair in pairs)


def counted(rule, denoisers, text=TEXT, ranked_by=RankedBy.NOISE, lookahead=3):
    counts = Counts(ranked_by, lookahead)
    for denoiser in denoisers:
        for block in vanilla(denoiser, text, rule).blocks:
            counts.add(block, rule)
    return counts


def test_a_text_in_order_of_confidence_gives_a_chain():
    """Four slots, always filled from the left: three anchors a block, one less of each level."""
    counts = counted(Rule(Static(1)), [Scripted(4, [5, 6, 7, 5])], Text((), 4))
    chain_of = [formula(*((i + 1, 1) for i in range(k))) for k in (1, 2, 3)]
    assert [(n.formula, n.level, n.count) for n in counts.nodes()] == [
        (chain_of[0], 1, 3),
        (chain_of[1], 2, 2),
        (chain_of[2], 3, 1),
    ]


def test_a_prompt_in_the_block_and_blocks_of_one_step_give_no_formula_of_it():
    counts = counted(Rule(Static(1)), [Scripted(4, [5, 6, 7, 5])], Text((1, 2, 3), 1))
    assert counts.nodes() == () and counts.graph(10).nodes == ()


def by_hand(rule, denoisers, lookahead):
    """Greedy ranks of what each lookahead fills, from states and tables alone."""
    levels: list[Counter] = [Counter() for _ in range(lookahead)]
    for denoiser in denoisers:
        for block in vanilla(denoiser, TEXT, rule).blocks:
            prefix = (*TEXT.prompt, *vanilla(denoiser, TEXT, rule).tokens)[: block.start]
            states = block.states
            for a in range(1, len(states) - 1):
                table = denoiser.logits(prefix, states[a - 1])
                p = np.exp(table.astype(float))
                p /= p.sum(1, keepdims=True)
                masked = [s for s in range(3) if states[a][s] == MASKED]
                order = sorted(masked, key=lambda s: (-p[s].max(), s))
                for k in range(1, lookahead + 1):
                    if a + k >= len(states):
                        break
                    pairs = []
                    for slot in masked:
                        token = states[a + k][slot]
                        if token != MASKED:
                            tokens = sorted(range(3), key=lambda v: (-p[slot, v], v))
                            pairs.append((order.index(slot) + 1, tokens.index(token) + 1))
                    levels[k - 1][formula(*pairs)] += 1
    return levels


@pytest.mark.parametrize("unmasking", [Static(1), Dynamic(0.6)])
def test_calibration_equals_brute_force(unmasking):
    rule, tables = Rule(unmasking), [Tabular(seed) for seed in range(12)]
    counts = counted(rule, tables, lookahead=2)
    kept: dict = {}
    for level, found in enumerate(by_hand(rule, tables, 2), start=1):
        for each in sorted(found, key=lambda f: (-found[f], sorted(f)))[:3]:
            first, total = kept.get(each, (level, 0))
            kept[each] = first, total + found[each]
    assert {n.formula: (n.level, n.count) for n in counts.nodes()} == kept
    for size in (1, 2, 3, 4):
        sums = [sum(n.count for n in g) for g in connected_sets(counts.nodes(), size)]
        if sums:
            assert sum(node.count for node in counts.graph(size).nodes) == max(sums)


def connected_sets(nodes, size):
    for chosen in combinations(nodes, size):
        formulas = [n.formula for n in chosen]
        if all(n.level <= 2 or any(f < n.formula for f in formulas) for n in chosen):
            yield chosen


def test_a_node_without_a_parent_is_left_out_however_common_it_is():
    pairs = [(1, 1), (2, 1), (3, 1)]
    chain_of = [Node(formula(*pairs[:k]), k, c) for k, c in ((1, 5), (2, 4), (3, 9))]
    orphan = Node(formula((4, 1), (5, 1), (6, 1)), 3, 100)
    nodes = (*chain_of, orphan)
    assert choose(nodes, 2) == (chain_of[0], chain_of[2])
    assert choose(nodes, 4) == tuple(chain_of), "the largest connected set of fewer"
    assert choose((orphan,), 1) == () and not is_connected([orphan])
    with pytest.raises(ValueError, match="size"):
        choose([Node(formula((i, 1)), 1, 1) for i in range(1, 60)], 30)


def test_ranks_with_noise_accept_more_than_the_papers_above_temperature_0():
    """A table whose logits hardly depend on the state, so that the noise alone is to be known."""

    class Steady(Tabular):
        def logits(self, prefix, state):
            return super().logits(prefix, (MASKED,) * 3) + 0.01 * super().logits(prefix, state)

    calls = dict.fromkeys(RankedBy, 0)
    for seed in range(20):
        rule = Rule(Static(1), 1.0, seed)
        for by in RankedBy:
            counts = counted(rule, [Steady(seed)], ranked_by=by)
            calls[by] += speculative(
                Steady(100 + seed), TEXT, rule, GraphDrafting(counts.graph(4), rule, 1)
            ).calls
    assert calls[RankedBy.NOISE] < 0.95 * calls[RankedBy.GREEDY]


CALIBRATION = parse(
    CalibrationFields,
    {
        "block_length": 3,
        "unmasking": {"kind": "dynamic", "threshold": 0.9},
        "temperature": 1.0,
        "lookahead": 3,
        "prompts": 2,
        "steps": 14,
        "weights": "ab",
    },
)
GRAPH = DraftGraph(
    (Node(formula((1, 1)), 1, 9), Node(formula((1, 1), (2, 1, 1)), 2, 5)), anchors=14
)


def test_a_graph_is_read_as_it_was_written_and_named_by_its_hash():
    text = to_json(GRAPH, CALIBRATION)
    graph, calibration, name = from_json(text)
    assert (graph, calibration) == (GRAPH, CALIBRATION)
    assert to_json(graph, calibration) == text and json.loads(text)["hash"] == name
    greedy = DraftGraph(GRAPH.nodes, RankedBy.GREEDY, GRAPH.anchors)
    assert from_json(to_json(greedy, CALIBRATION))[2] != name


def changed(*path, value):
    """The file with one field changed, and its hash made right."""
    fields = json.loads(to_json(GRAPH, CALIBRATION))
    del fields["hash"]
    at = fields
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return json.dumps(fields | {"hash": hash_fields(fields)})


WRONG = {
    "version": changed("version", value=1),
    "anchors": changed("anchors", value=-1),
    "ranked_by": changed("ranked_by", value="luck"),
    "nodes.0.level": changed("nodes", 0, "level", value=0),
    "nodes.0.count": changed("nodes", 0, "count", value=15),
    "nodes.1.count": changed("nodes", 1, "count", value=0),
    "nodes.1.candidates.0.1": changed("nodes", 1, "candidates", 0, value=[1, 0, 0]),
    "nodes.0.candidates.0.0": changed("nodes", 0, "candidates", 0, value=[1025, 1, 0]),
    "nodes.0.candidates.0.1": changed("nodes", 0, "candidates", 0, value=[1, 1 << 31, 0]),
    "nodes.0.candidates.0.2": changed("nodes", 0, "candidates", 0, value=[1, 1, 1024]),
    "nodes.0.candidates": changed("nodes", 0, "candidates", value=[]),
    "nodes.1.candidates": changed("nodes", 1, "candidates", value=[[1, 1, 0]]),
    "nodes.0.edges": changed("nodes", 0, "edges", value=[]),
    "calibration.temperature": changed("calibration", "temperature", value=-1),
    "hash": to_json(GRAPH, CALIBRATION).replace('"count": 9', '"count": 8'),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_field_is_refused_by_name(field):
    with pytest.raises(ConfigError) as refused:
        from_json(WRONG[field])
    assert refused.value.param == field and field in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(ConfigError, match="JSON"):
        from_json(text)
