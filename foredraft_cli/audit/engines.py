"""Engines in this process: each request decoded plainly and in every mode, token by token.

In `numerics: exact` no difference is allowed. Otherwise each first difference is reported with its
margin, the distance between the scores of the two tokens that were chosen: one beyond the measured
tolerance is a bug.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass

from deployments.config import ForedraftConfig
from deployments.in_process import Engines, engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from foredraft.types import Acceptance, Proposal, SamplingParams
from foredraft_cli.prompts.held_out import TEMPERATURES, fitted, sampling
from orchestrator.config import NgramConfig
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.request import GenerationRequest, StepEvent

_LENGTH = 8
NGRAM_TREE = "ngram+tree"
# How drafts are made, by the mode's name: each proposal alone, and trees after the text's n-grams.
MODES: dict[str, Proposal] = {str(proposal): proposal for proposal in Proposal} | {
    NGRAM_TREE: Proposal.TREE
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first position where one request's tokens differ, and the two scores' distance."""

    request: int
    position: int
    plain: int
    speculative: int
    margin: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One way of speculating, over all requests of one temperature."""

    mode: str
    temperature: float
    requests: int
    identical: int
    divergences: tuple[Divergence, ...]


def is_bug(numerics: str, found: Divergence) -> bool:
    """Return whether measured numerics ("exact" or "tolerance <x>") do not explain a difference."""
    return numerics == "exact" or found.margin > float(numerics.removeprefix("tolerance "))


async def audit(
    config: ForedraftConfig, texts: list[str], max_tokens: int, streams: int
) -> tuple[str, list[Finding]]:
    """Return the target's measured numerics and a finding per mode and temperature."""
    findings = []
    async with engines(config) as loaded:
        for temperature in TEMPERATURES:
            asked = [
                (
                    fitted(text, loaded.tokenizer, loaded.target.max_len, max_tokens),
                    sampling(temperature, index),
                )
                for index, text in enumerate(texts)
            ]
            plain = await _decode(loaded, config, asked, max_tokens, 1, None)
            for mode in MODES:
                fast = await _decode(loaded, config, asked, max_tokens, streams, mode)
                pairs = enumerate(zip(asked, plain, fast, strict=True))
                differing = [
                    await _divergence(loaded, index, one, a, b)
                    for index, (one, a, b) in pairs
                    if a != b
                ]
                found = tuple(differing)
                same = len(texts) - len(found)
                findings.append(Finding(mode, temperature, len(texts), same, found))
        return loaded.target.numerics, findings


async def _decode(
    loaded: Engines,
    config: ForedraftConfig,
    asked: list[tuple[tuple[int, ...], SamplingParams]],
    max_tokens: int,
    streams: int,
    mode: str | None,
) -> list[tuple[int, ...]]:
    """Return each request's tokens, decoded plainly if there is no mode."""
    gate = asyncio.Semaphore(streams)
    # A fixed length: a controller that finds plain decoding sooner would leave nothing to compare.
    options = SpeculativeOptions(
        proposal=MODES[mode] if mode else None,
        ngram=NgramConfig(enabled=mode == NGRAM_TREE),
        acceptance=Acceptance.COUPLED,
        adl=FixedConfig(k=_LENGTH),
    )
    orchestrator = options.applied_to(config.orchestrator)

    async def one(prompt: tuple[int, ...], params: SamplingParams) -> tuple[int, ...]:
        request = GenerationRequest(
            session_id=uuid.uuid4().hex,
            prompt=prompt,
            sampling=params,
            max_new_tokens=max_tokens,
            stop_token_ids=loaded.eos,
            speculate=mode is not None,
        )
        tokens: list[int] = []
        async with gate:
            async for event in generate(request, loaded.drafter, loaded.verifier, orchestrator):
                if isinstance(event, StepEvent):
                    tokens += [committed.token for committed in event.tokens]
        return tuple(tokens)

    return list(await asyncio.gather(*(one(*each) for each in asked)))


async def _divergence(
    loaded: Engines,
    index: int,
    one: tuple[tuple[int, ...], SamplingParams],
    plain: tuple[int, ...],
    fast: tuple[int, ...],
) -> Divergence:
    """Return where and by how little two decodings of one request parted."""
    prompt, params = one
    at = next(i for i, pair in enumerate(zip(plain, fast, strict=False)) if len(set(pair)) > 1)
    text = [*prompt, *plain[:at]]
    scores = await loaded.runner.scores(text, params, (plain[at], fast[at]))
    return Divergence(index, at, plain[at], fast[at], abs(scores[0] - scores[1]))
