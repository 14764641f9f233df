"""Digests of what the compiled kernels compute: python -m bench.micro.recorded_logits --save FILE

Two builds with the same digests give the same bits: --compare FILE names each case that differs.
A digest is of one instruction set. The inputs of a model are digested too: torch computes a few
tables as weights are packed, so that other processors may begin from other numbers.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from drafter_service.config import DrafterConfig
from drafter_service.load import load_compiled
from drafter_service.models.compiled.noise import NativeNoise
from drafter_service.models.compiled.searches import NativeBeam, NativeTree
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.draft_tree import TreeParams, TreeScores
from drafter_service.proposals.path_search import SearchParams
from foredraft.types import SamplingParams
from foredraft_kernels.loader import Isa, load_kernels, supported_isas
from foredraft_kernels.memory import Arena
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.attention.reference import KvShape, Rows
from verifier_service.models.compiled.attention import NativeAttention
from verifier_service.models.compiled.sampling import NativeArgmax, NativeChoice
from verifier_service.models.compiled.weights import pack
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc
from verifier_service.rules.sampling import RowSampling

Case = tuple[str, Any]
EMBEDDED = Path("models/embedded")
PARENTS = (-1, 0, 0, 1, 1, 3, -1, 6, 2)
# Three query heads to a key head, biases, and a vocabulary of no whole panels.
GROUPED: dict[str, Any] = {
    "vocab_size": 509,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
}
CHUNKS = ((300,), (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 199), (64, 64, 64, 64, 44), (17, 283))


def digest(value: Any) -> str:
    """Return sha256 of arrays' bytes, or of a value's repr, which is exact for floats."""
    if isinstance(value, torch.Tensor):
        value = value.contiguous().view(torch.uint8).numpy()
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return hashlib.sha256(repr(value).encode()).hexdigest()


def text(seed: int, length: int, vocabulary: int) -> list[int]:
    """Return a text that repeats itself, as n-gram searches need."""
    rng = np.random.default_rng(seed)
    phrases = rng.integers(2, vocabulary, (12, 9))
    return [int(t) for t in phrases[rng.integers(12, size=length // 9 + 1)].reshape(-1)[:length]]


def write_grouped(folder: Path) -> None:
    """Write the GROUPED model with random weights that every machine draws alike."""
    rng = np.random.default_rng(6)
    model = Qwen2ForCausalLM(Qwen2Config(**GROUPED))
    for parameter in model.parameters():
        drawn = rng.normal(0, 0.2, parameter.shape).astype(np.float32)
        parameter.data = torch.from_numpy(drawn)
    model.save_pretrained(folder)


def passes(model: PagedModel, vocabulary: int) -> Iterator[Case]:
    """Yield logits of one text in chunks, of many texts in one batch, of trees and what follows."""
    whole = text(1, 300, vocabulary)
    for chunks in CHUNKS:
        table, at, rows = alloc(model, 300), 0, []
        for count in chunks:
            rows.append(model.forward([Segment(table, at, whole[at : at + count], count)]))
            at += count
        yield f"one text in {len(chunks)} chunks", np.concatenate(rows)
        model.pool.give(table)
    for sessions in (1, 2, 5, 16):
        starts = [1 + 37 * i % 250 for i in range(sessions)]
        texts = [text(10 + i, start + 40, vocabulary) for i, start in enumerate(starts)]
        tables = [alloc(model, len(each)) for each in texts]
        read = zip(tables, texts, starts, strict=True)
        prompts = [Segment(table, 0, each[:start], 1) for table, each, start in read]
        yield f"{sessions} prompts", model.forward(prompts)
        for k in (0, 3, 8, 30):
            rounds = [
                Segment(table, start - 1, each[start - 1 : start + k], k + 1)
                for table, each, start in zip(tables, texts, starts, strict=True)
            ]
            yield f"{sessions} sessions, {k} drafted", model.forward(rounds)
        trees = [
            Segment(table, start, [*each[:2], *each[20:29]], 10, PARENTS)
            for table, each, start in zip(tables, texts, starts, strict=True)
        ]
        yield f"{sessions} trees", model.forward(trees)
        for table, start in zip(tables, starts, strict=True):
            model.keep(table, start + 2, [0, 1, 3, 5])
        after = [Segment(t, s + 6, [5, 6], 2) for t, s in zip(tables, starts, strict=True)]
        yield f"{sessions} sessions after a branch", model.forward(after)
        for table in tables:
            model.pool.give(table)


def products(isa: Isa) -> Iterator[Case]:
    """Yield linear layers of several sizes for each number of rows."""
    rng = np.random.default_rng(2)
    multiply = getattr(load_kernels(), f"fd_linear_{isa}")
    for width, out in ((32, 32), (96, 64), (384, 1152), (1024, 384)):
        x, weight, bias = (
            torch.from_numpy(rng.standard_normal(shape, np.float32)).bfloat16()
            for shape in ((45, width), (out, width), (out,))
        )
        arena = Arena(4 * weight.numel() + 65536)
        linear = pack(arena, isa, weight, bias)
        for rows in range(1, 46):
            y = np.empty((rows, linear.out), np.float32)
            at = ctypes.addressof(linear)
            if multiply(at, x.data_ptr(), rows, y.ctypes.data, 1 + rows % 3):
                raise MemoryError
            yield f"product {width} x {out}, {rows} rows", y


def attention() -> Iterator[Case]:
    """Yield the attention kernel's rows, in chunks and as a tree, in bf16 and fp32."""
    rng = np.random.default_rng(3)
    kernel = NativeAttention(load_kernels())  # type: ignore[arg-type]
    for dtype in (torch.bfloat16, torch.float32):
        shape = KvShape(2, 2, 64, dtype, torch.device("cpu"))
        kv = kernel.alloc(shape, 6, 64)
        q, k, v = (
            torch.from_numpy(rng.standard_normal((heads, 150, 64), np.float32)).to(dtype)
            for heads in (6, 2, 2)
        )
        at = 0
        for count, parents in ((1, ()), (70, ()), (33, ()), (20, PARENTS), (26, ())):
            rows = slice(at, at + count)
            plan = kernel.plan([Rows(kv, [3, 0, 5], at, 0, count, parents)], count)
            out = kernel.attend(1, q[:, rows], k[:, rows], v[:, rows], plan, 0.125)
            yield f"attention {dtype}, rows from {at}", out
            at += count
        kernel.keep(kv, [3, 0, 5], 115, [0, 2, 4])
        plan = kernel.plan([Rows(kv, [3, 0, 5], 118, 0, 5)], 5)
        yield (
            f"attention {dtype} after a branch",
            kernel.attend(1, q[:, :5], k[:, :5], v[:, :5], plan, 0.125),
        )


def choices() -> Iterator[Case]:
    """Yield sampled tokens."""
    rng = np.random.default_rng(4)
    choose, argmax = NativeChoice(load_kernels()), NativeArgmax(load_kernels())  # type: ignore[arg-type]
    for vocabulary in (70, 4096, 32003):
        logits = rng.normal(0, 3, (40, vocabulary)).astype(np.float32)
        for temperature in (0.0, 0.3, 1.0, 2.0):
            draws = [
                RowSampling(SamplingParams(temperature, seed=7 + i), 100 + i) for i in range(40)
            ]
            yield f"choice of {vocabulary} at {temperature}", choose(logits, draws)
            z = (logits - logits.max(1, keepdims=True)).astype(np.float64)
            yield f"argmax of {vocabulary} at {temperature}", argmax(z, draws)


def drafts(isa: Isa) -> Iterator[Case]:
    """Yield the drafter's scores, and what the searches make of them."""
    model = drafter(isa)
    yield "drafter inputs", model._packed._arena.filled
    vocabulary, kernels = model.capabilities.vocab_size, load_kernels()
    assert kernels is not None
    noise = NativeNoise(kernels)
    whole = text(5, 600, vocabulary)
    at = 0
    for count, masks in ((1, 1), (6, 9), (33, 16), (100, 3), (3, 8), (200, 16), (1, 0), (12, 5)):
        [scores] = model.draft([BlockRequest(0, at, whole[at : at + count], masks)])
        at += count
        yield from named(f"{masks} slots after {at}", scores)
        if masks > 1:
            yield from searches(kernels, noise, scores, whole[:at], vocabulary)
    for sessions in (2, 4, 9):
        batch = [
            BlockRequest(1 + i, 0, text(20 + i, 3 + 31 * i, vocabulary), 1 + 5 * i % 16)
            for i in range(sessions)
        ]
        for i, scores in enumerate(model.draft(batch)):
            yield from named(f"session {i} of {sessions}", scores)


def named(name: str, scores: Any) -> Iterator[Case]:
    yield f"{name}: tokens", scores.tokens
    yield f"{name}: log q", scores.log_q
    yield f"{name}: edges", scores.edge


def searches(
    kernels: ctypes.CDLL, noise: NativeNoise, scores: Any, before: Sequence[int], vocabulary: int
) -> Iterator[Case]:
    """Yield the noise, the beams and the trees of a block."""
    positions = np.arange(len(before), len(before) + len(scores.tokens))
    for temperature in (0.0, 0.8):
        own = np.zeros(scores.tokens.shape)
        if temperature:
            own = noise(11, positions, scores.tokens)
            yield f"noise at {len(before)}", own
        name = f"after {len(before)}, {len(scores.tokens)} slots at {temperature}"
        for edge, context, order in ((0.6, 0.3, 4), (1.0, 0.0, 2), (0.0, 1.0, 8)):
            for params in (SearchParams(0.95, 8, 0.2, 4), SearchParams(1.0, 15, 0.5, 9)):
                ngram = ContextNgram(vocabulary, order)
                search = NativeBeam(kernels, params, edge, context, ngram)
                path = search(scores, own, before, temperature, 0)
                yield f"beam {edge} {context} {params.beam} {name}", path
        logits = scores.log_q[:, None, :] + scores.edge
        for rows in (logits, scores.log_q[:, None, :]):
            for pseudocounts in (TreeParams().pseudocounts, ()):
                grown = TreeParams(pseudocounts=pseudocounts)
                seed = 11 if temperature else None
                asked = TreeScores(scores.tokens, rows, own, 1.2, before, seed)
                tree = NativeTree(kernels)(asked, 63, grown, 0)
                parts = (tree.tokens, tree.parents, tree.mass)
                yield f"tree {rows.shape[1]} {len(pseudocounts)} {name}", parts


def verifier(isa: Isa, path: Path, threads: int) -> PagedModel:
    """Return a target whose forward is compiled for an instruction set."""
    return load_target(VerifierConfig(model=path, threads=threads, isa=isa))


def drafter(isa: Isa) -> Any:
    """Return the embedded drafter, compiled for an instruction set."""
    model = load_compiled(DrafterConfig(model=EMBEDDED / "drafter", isa=isa))
    assert model is not None
    return model


def everything(folder: Path) -> Iterator[Case]:
    """Yield each case by its name; the GROUPED model is written to folder."""
    kernels = load_kernels()
    assert kernels is not None
    write_grouped(folder)
    yield from attention()
    yield from choices()
    for isa in supported_isas(kernels, "bf16"):
        for name, case in products(isa):
            yield f"{isa} {name}", case
        for path, vocabulary in ((EMBEDDED / "target", 4096), (folder, GROUPED["vocab_size"])):
            for threads in (1, 2):
                model = verifier(isa, path, threads)
                forward: Any = model.passes
                yield f"{isa} {path.name} inputs", forward._weights._arena.filled
                for name, case in passes(model, vocabulary):
                    yield f"{isa} {path.name} {threads} threads, {name}", case
        for name, case in drafts(isa):
            yield f"{isa} drafter, {name}", case


def main(write: Callable[[str], object] = sys.stdout.write) -> int:
    """Save digests, or compare with saved ones; return how many cases differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: digest(case) for name, case in everything(Path(folder, "grouped"))}
    if args.save:
        args.save.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    expected = json.loads(args.compare.read_text()) if args.compare else found
    differing = [
        name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)
    ]
    for name in differing:
        write(f"differs: {name}\n")
    write(f"{len(found)} cases, {len(differing)} differ\n")
    return len(differing)


if __name__ == "__main__":
    sys.exit(min(1, main()))
