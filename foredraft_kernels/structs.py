"""Mirrors of the C structs that Python fills, and of the bounds that it checks for C.

A field's meaning stands in C: structs.h of each part, and drafter/searches.h. The loader compares
each size and bound with the library's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

_int64, _double, _float = ctypes.c_int64, ctypes.c_double, ctypes.c_float
_pointer = ctypes.c_void_p

VERSION = 8
"""abi.h's ABI_VERSION."""
COLUMNS = 32
"""Columns of a panel (common/blocks.h); LINE bf16 numbers or BYTES bytes of a row are a line."""
LINE, BYTES = 32, 64
VERIFIER_MAX_HEAD_DIM, MAX_ORDERS, MAX_PLACES = 256, 8, 64
DRAFTER_MAX_HEAD_DIM, MAX_CANDIDATES, MAX_EDGE_RANK = 128, 64, 256
MAX_WIDTH, MAX_ORDER, _BUCKETS = 64, 8, 4096


def _each(kind: Any, names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, kind) for name in names.split())


class Segment(ctypes.Structure):
    _fields_ = (
        *_each(_pointer, "keys values"),
        *_each(_int64, "layer_bytes block_bytes block start first rows nodes mutual"),
        *_each(_pointer, "blocks parents positions"),
    )


class Batch(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "heads kv_heads head_dim wide count"),
        ("scale", _float),
        ("segments", _pointer),
    )


class VerifierLinear(ctypes.Structure):
    _fields_ = (*_each(_pointer, "panels bias"), *_each(_int64, "in out"))


class VerifierLayer(ctypes.Structure):
    _fields_ = (
        *_each(_pointer, "attention_norm mlp_norm"),
        *_each(VerifierLinear, "qkv out gate_up down"),
    )


class VerifierModel(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "hidden inner num_layers heads kv_heads head_dim"),
        *_each(_float, "eps scale"),
        *_each(_pointer, "embedding cos sin norm"),
        ("layers", ctypes.POINTER(VerifierLayer)),
        ("head", VerifierLinear),
    )


class HiddenStates(ctypes.Structure):
    _fields_ = (
        ("rows", _pointer),
        ("num_rows", _int64),
        ("layers", _pointer),
        ("num_layers", _int64),
        ("states", _pointer),
    )


class NgramText(ctypes.Structure):
    _fields_ = (
        *_each(_pointer, "text stops pseudocounts"),
        *_each(_int64, "length num_stops orders window most depth"),
        *_each(_double, "min_expected min_node_prob"),
    )


class DrafterLinear(ctypes.Structure):
    _fields_ = (*_each(_pointer, "panels scales"), *_each(_int64, "in out"))


class DrafterLayer(ctypes.Structure):
    _fields_ = _each(DrafterLinear, "qkv out gate_up down")


class DrafterModel(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "scored hidden heads head_dim inner num_layers rank"),
        *_each(_int64, "eos mask candidates slots capacity"),
        ("layers", ctypes.POINTER(DrafterLayer)),
        *_each(DrafterLinear, "head edge_gate"),
        *_each(_pointer, "token_ids row_of embedding mask_slots mask_qkv cos sin"),
        *_each(_pointer, "edge_bias edge_previous edge_next"),
        ("eps", _float),
    )


class Request(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "slot start tokens num_slots"),
        ("temperature", _double),
        ("seed", ctypes.c_uint64),
    )


class BeamSettings(ctypes.Structure):
    _fields_ = (
        ("tau", _double),
        *_each(_int64, "max_candidates beam"),
        *_each(_double, "weight edge context"),
    )


class BlockScores(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "slots width eos"),
        ("temperature", _double),
        *_each(_pointer, "tokens log_q edge noise"),
    )


class CountedText(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "length first order"),
        *_each(_double, "pseudocount floor"),
        *_each(_pointer, "tokens previous"),
        ("heads", ctypes.c_int32 * _BUCKETS),
    )


class TreeScores(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "depth text_depth width parents eos noisy position"),
        ("seed", ctypes.c_uint64),
        *_each(_double, "confidence_exponent least"),
        *_each(_pointer, "tokens logits noise pseudocounts"),
        ("text", ctypes.POINTER(CountedText)),
    )


class DraftGraph(ctypes.Structure):
    _fields_ = (
        *_each(_int64, "num_nodes num_prefixes num_steps longest deepest"),
        *_each(_pointer, "shorter positions ranks steps after paths lengths"),
        *_each(_pointer, "log_frequencies within"),
    )


class DraftSettings(ctypes.Structure):
    _fields_ = (
        *_each(_double, "temperature head most_cost"),
        ("seed", ctypes.c_uint64),
        *_each(_int64, "slots vocabulary per_step budget"),
    )


def _sizes(**mirrors: type[ctypes.Structure]) -> dict[str, int]:
    return {name: ctypes.sizeof(mirror) for name, mirror in mirrors.items()}


ABI: Mapping[str, Mapping[str, int]] = {
    "denoiser": {
        "version": VERSION,
        **_sizes(draft_graph=DraftGraph, draft_settings=DraftSettings),
    },
    "verifier": {
        "version": VERSION,
        "MAX_HEAD_DIM": VERIFIER_MAX_HEAD_DIM,
        "MAX_ORDERS": MAX_ORDERS,
        "MAX_PLACES": MAX_PLACES,
        **_sizes(
            segment=Segment,
            batch=Batch,
            linear=VerifierLinear,
            layer=VerifierLayer,
            model=VerifierModel,
            hidden_states=HiddenStates,
            ngram_text=NgramText,
        ),
    },
    "drafter": {
        "version": VERSION,
        "MAX_HEAD_DIM": DRAFTER_MAX_HEAD_DIM,
        "MAX_CANDIDATES": MAX_CANDIDATES,
        "MAX_EDGE_RANK": MAX_EDGE_RANK,
        "MAX_WIDTH": MAX_WIDTH,
        "MAX_ORDER": MAX_ORDER,
        **_sizes(
            linear=DrafterLinear,
            layer=DrafterLayer,
            model=DrafterModel,
            request=Request,
            beam_settings=BeamSettings,
            block_scores=BlockScores,
            counted_text=CountedText,
            tree_scores=TreeScores,
        ),
    },
}
"""What each part of the library must report: bounds, and the bytes of each struct."""
