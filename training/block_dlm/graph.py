"""Calibrates a model's draft graph on windows of its training corpus (Spiffy, section 4.4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from denoiser_service.core.calibrate import LOOKAHEAD, Counts
from denoiser_service.core.decode import vanilla
from denoiser_service.core.graph import DraftGraph, RankedBy
from denoiser_service.core.graph_file import (
    FILE_NAME,
    CalibrationFields,
    DynamicFields,
    StaticFields,
    to_json,
)
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from foredraft.denoising import Static, Unmasking
from foredraft.model_files import sha256
from training.block_dlm.denoiser import ServedDenoiser
from training.corpus.encoded import encoded
from training.corpus.tokenizer import EOS_ID


@dataclass(frozen=True)
class GraphRun:
    """Settings of one calibration; prompt i is decoded with seed i.

    `corpus` is "core", the standard library, or "rest", other packages.
    """

    model: Path
    data: Path
    unmasking: Unmasking
    corpus: str = "core"
    temperature: float = 1.0
    ranked_by: RankedBy = RankedBy.NOISE
    size: int = 10
    lookahead: int = LOOKAHEAD
    prompts: int = 50
    prompt_tokens: int = 128
    max_tokens: int = 64


def corpus_prompts(work: Path, part: str, count: int, length: int) -> list[tuple[int, ...]]:
    """Evenly spread windows of a part of the corpus."""
    tokens = encoded(work, part)
    starts = np.linspace(0, tokens.size - length, count).astype(int)
    return [tuple(int(token) for token in tokens[at : at + length]) for at in starts]


def calibrate(run: GraphRun) -> tuple[DraftGraph, Path]:
    """Decodes the prompts without drafts; writes the graph beside the weights; returns both."""
    denoiser, steps = ServedDenoiser(run.model), 0
    prompts = corpus_prompts(run.data, run.corpus, run.prompts, run.prompt_tokens)
    counts = Counts(run.ranked_by, run.lookahead)
    for seed, prompt in enumerate(tqdm(prompts, unit="prompt", mininterval=5)):
        rule = Rule(run.unmasking, run.temperature, seed)
        decoded = vanilla(denoiser, Text(prompt, run.max_tokens, frozenset({EOS_ID})), rule)
        steps += decoded.steps
        for block in decoded.blocks:
            counts.add(block, rule)
    graph = counts.graph(run.size)
    fields = CalibrationFields(
        block_length=denoiser.block_length,
        unmasking=_unmasking_fields(run.unmasking),
        temperature=run.temperature,
        lookahead=run.lookahead,
        prompts=len(prompts),
        steps=steps,
        weights=sha256(run.model / "model.safetensors"),
    )
    file = run.model / FILE_NAME
    file.write_text(to_json(graph, fields))
    return graph, file


def _unmasking_fields(unmasking: Unmasking) -> StaticFields | DynamicFields:
    if isinstance(unmasking, Static):
        return StaticFields(kind="static", per_step=unmasking.per_step)
    return DynamicFields(kind="dynamic", threshold=unmasking.threshold)
