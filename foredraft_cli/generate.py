"""`foredraft generate`: one prompt in one process, each token coloured by how it came."""

from __future__ import annotations

import uuid

from rich.console import Console
from rich.text import Text

from deployments.config import ForedraftConfig
from deployments.in_process import engines
from foredraft.errors import InvalidRequest
from foredraft.types import SamplingParams
from foredraft_cli.colours import STYLES, legend
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, Summary


async def run(
    config: ForedraftConfig, prompt: str, sampling: SamplingParams, max_tokens: int, plain: bool
) -> None:
    """Print the prompt's continuation as it is committed, then how speculation did."""
    console = Console(highlight=False)
    async with engines(config) as loaded:
        tokens = tuple(loaded.tokenizer.encode(prompt).ids)
        if not tokens:
            raise InvalidRequest("prompt is empty", param="prompt")
        request = GenerationRequest(
            session_id=uuid.uuid4().hex,
            prompt=tokens,
            sampling=sampling,
            max_new_tokens=max_tokens,
            stop_token_ids=loaded.eos,
            speculate=not plain,
        )
        console.print(legend())
        console.print(Text(prompt, "dim"), end="")
        events = generate(request, loaded.drafter, loaded.verifier, config.orchestrator)
        async for event in events:
            if isinstance(event, Summary):
                report = event.report
                console.print(
                    f"\n\n{report.tokens} tokens in {report.rounds} rounds, "
                    f"MAT {report.mat:.2f}, mean k {report.mean_k:.1f}, "
                    f"finish: {event.finish}, numerics: {loaded.target.numerics}"
                )
                return
            for token, origin, _ in event.tokens:
                console.print(Text(loaded.tokenizer.decode([token]), STYLES[origin]), end="")
