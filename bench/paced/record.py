"""Records what a pair decides, once: texts of the target, candidates of the drafter along them."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deployments.config import ForedraftConfig
from deployments.in_process import Engines, engines
from drafter_service.load import load_model
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import ConfigError
from foredraft.model_files import weights_hash
from foredraft.pacing.recording import DRAFTER, TARGET, Arrays, RecordedText, Recording, write
from foredraft.types import SamplingParams
from foredraft_cli.prompts import held_out
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent

# Of what is recorded and how: another number makes recordings anew.
_VERSION = 3
# Texts at once: of the target, and of the drafter.
_DECODED, _DRAFTED = 16, 16


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """What is recorded: prompts, of each so many last tokens, the tokens after each, temperatures,
    numbers of mask slots: those of drafts of four tokens and their guesses, and of longer ones.

    Prompts are short, so that decoding takes most of the time, not prefill.
    """

    prompts: int = 64
    prompt_tokens: int = 24
    max_tokens: int = 128
    temperatures: tuple[float, ...] = held_out.TEMPERATURES
    slots: tuple[int, ...] = (5, 8)


async def recorded(
    config: ForedraftConfig, plan: RecordingPlan, folder: Path, say: Callable[[str], None]
) -> tuple[Path, list[RecordedText]]:
    """Return the recording of a configuration's pair and its texts; made now unless it is there.

    Raise ConfigError for one that cannot be used.
    """
    # Imported here: transformers takes seconds, and the command line's help needs none of it.
    from verifier_service.models.checkpoint import describe, load_config

    target, drafter = config.verifier.service, config.drafter.service
    info = describe(target, load_config(target.model))
    hashes = {TARGET: info.weights_hash, DRAFTER: weights_hash(drafter.model)}
    made_of = repr((_VERSION, hashes, plan, drafter.candidates))
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    path = folder / f"recording-{key}.safetensors"
    if path.exists():
        recording = Recording(path, TARGET, info.name, info.weights_hash, info.vocab_size)
        return path, recording.texts()
    say(f"{plan.prompts} prompts at {len(plan.temperatures)} temperatures are recorded: {path}")
    config = without_pace(config)
    async with engines(config) as loaded:
        texts = await _texts(loaded, plan)
    model = load_model(config.drafter.service)
    write(path, texts, drafts(model, texts, plan.slots), hashes)
    return path, texts


def without_pace(config: ForedraftConfig) -> ForedraftConfig:
    """Return the configuration of the real models."""
    real = {"pace": None, "recording": None}
    drafter = config.drafter.service.model_copy(update=real)
    # Another room than for what is played back: here a token's KV is not one number. Of several
    # threads each would wait for the slowest, where others use the machine.
    sizes = {"kv_tokens": 32768, "max_sessions": 64, "row_budget": 256, "prefill_rows": 64}
    sizes["threads"] = 1
    verifier = config.verifier.service.model_copy(update=real | sizes)
    return config.model_copy(
        update={
            "drafter": config.drafter.model_copy(update={"service": drafter}),
            "verifier": config.verifier.model_copy(update={"service": verifier}),
        }
    )


async def _texts(loaded: Engines, plan: RecordingPlan) -> list[RecordedText]:
    """Return the target's texts, temperature after temperature."""
    gate = asyncio.Semaphore(_DECODED)

    async def text(prompt: tuple[int, ...], sampling: SamplingParams) -> RecordedText:
        request = GenerationRequest(
            session_id=uuid.uuid4().hex,
            prompt=prompt,
            sampling=sampling,
            max_new_tokens=plan.max_tokens,
            stop_token_ids=loaded.eos,
            speculate=False,
        )
        tokens = list(prompt)
        async with gate:
            async for event in generate(
                request, loaded.drafter, loaded.verifier, OrchestratorConfig()
            ):
                if isinstance(event, StepEvent):
                    tokens += [committed.token for committed in event.tokens]
        return RecordedText(tuple(tokens), len(prompt), sampling.temperature, sampling.seed)

    asked = [
        # A target is asked for what follows a text, not at which temperature: so no two
        # temperatures have a text in common.
        (
            held_out.fitted(each, loaded.tokenizer, 2048, plan.max_tokens)[
                place - plan.prompt_tokens :
            ],
            temperature,
            index,
        )
        for place, temperature in enumerate(plan.temperatures)
        for index, each in enumerate(held_out.prompts(plan.prompts))
    ]
    return list(
        await asyncio.gather(
            *(text(prompt, held_out.sampling(at, index)) for prompt, at, index in asked)
        )
    )


def drafts(
    model: DiffusionLM, texts: Sequence[RecordedText], numbers_of_slots: Sequence[int]
) -> Arrays:
    """Return a drafter's candidates after each prefix of the texts that the target continued.

    Raise ConfigError for more mask slots than it has.
    """
    most = model.capabilities.max_mask_slots
    if max(numbers_of_slots) > most:
        raise ConfigError(f"the drafter has {most} mask slots", param="slots")
    arrays: Arrays = {}
    found = [
        scores
        for first in range(0, len(texts), _DRAFTED)
        for scores in _along(model, texts[first : first + _DRAFTED], numbers_of_slots)
    ]
    for place, slots in enumerate(numbers_of_slots):
        each = [scores[place] for scores in found]
        arrays[f"drafts.{slots}.tokens"] = np.array([s.tokens for s in each], dtype=np.int32)
        arrays[f"drafts.{slots}.log_q"] = np.array([s.log_q for s in each], dtype=np.float32)
        if each[0].edge is not None:
            arrays[f"drafts.{slots}.edge"] = np.array([s.edge for s in each], dtype=np.float16)
    return arrays


def _along(
    model: DiffusionLM, texts: Sequence[RecordedText], numbers_of_slots: Sequence[int]
) -> list[list[BlockScores]]:
    """Return the scores after each prefix of some texts, text after text, by number of slots."""
    found: list[list[list[BlockScores]]] = [[] for _ in texts]
    for slot, text in enumerate(texts):
        if text.prompt_len > 1:
            model.draft([BlockRequest(slot, 0, text.tokens[: text.prompt_len - 1], 0)])
    for step in range(max(len(text.answer) for text in texts)):
        ends = {n: text.prompt_len + step for n, text in enumerate(texts)}
        left = [n for n, text in enumerate(texts) if ends[n] < len(text.tokens)]
        requests = [
            BlockRequest(
                n,
                ends[n] - 1,
                texts[n].tokens[ends[n] - 1 : ends[n]],
                1,
                sampling=SamplingParams(texts[n].temperature, seed=texts[n].seed),
            )
            for n in left
        ]
        by_slots = [
            model.draft([replace(request, num_slots=slots) for request in requests])
            for slots in numbers_of_slots
        ]
        for n, *scores in zip(left, *by_slots, strict=True):
            found[n].append(scores)
    return [scores for of_text in found for scores in of_text]
