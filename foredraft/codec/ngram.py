"""Parameters of n-gram trees <-> protobuf, bounds checked."""

from __future__ import annotations

from foredraft import limits
from foredraft.ngram.params import NgramParams
from foredraft.v1 import verifier_pb2

MAX_PSEUDOCOUNTS = 8


def ngram_to_pb(p: NgramParams | None) -> verifier_pb2.NgramParams | None:
    if p is None:
        return None
    return verifier_pb2.NgramParams(
        min_expected_tokens=p.min_expected_tokens,
        depth=p.depth,
        window=p.window,
        pseudocounts=p.pseudocounts,
        min_node_prob=p.min_node_prob,
    )


def ngram_from_pb(m: verifier_pb2.NgramParams) -> NgramParams:
    limits.check_range("ngram.min_expected_tokens", m.min_expected_tokens, 0, limits.MAX_DRAFT)
    limits.check_range("ngram.depth", m.depth, 1, limits.MAX_DRAFT)
    limits.check_range("ngram.window", m.window, 1, limits.MAX_PREFIX)
    limits.check_range("ngram.pseudocounts length", len(m.pseudocounts), 1, MAX_PSEUDOCOUNTS)
    for pseudocount in m.pseudocounts:
        limits.check_range("ngram.pseudocounts", pseudocount, 1e-6, 1e6)
    limits.check_range("ngram.min_node_prob", m.min_node_prob, 1e-6, 1)
    return NgramParams(
        m.min_expected_tokens, m.depth, m.window, tuple(m.pseudocounts), m.min_node_prob
    )
