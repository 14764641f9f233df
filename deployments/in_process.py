"""Both services' engines in this process, without Ray or gRPC: for one prompt and for the bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tokenizers import Tokenizer

from deployments.config import ForedraftConfig, located
from deployments.preflight import check_models
from drafter_service.batcher import Batcher
from drafter_service.load import load_engine as load_drafter
from foredraft.types import ModelInfo
from orchestrator.in_process import LocalDrafter, LocalVerifier
from orchestrator.ports import DrafterPort, VerifierPort
from verifier_service.load import load_engine as load_verifier
from verifier_service.runner import Runner


@dataclass(frozen=True, slots=True)
class Engines:
    """The loaded pair behind the orchestrator's ports."""

    tokenizer: Tokenizer
    drafter: DrafterPort
    verifier: VerifierPort
    runner: Runner
    target: ModelInfo

    @property
    def eos(self) -> tuple[int, ...]:
        """The token ids that end a text."""
        return self.target.eos_token_ids


@asynccontextmanager
async def engines(config: ForedraftConfig) -> AsyncIterator[Engines]:
    """Load both models, each into a worker thread; stop the threads on exit.

    Raise ConfigError naming a folder that cannot be used, WeightsError or Unavailable.
    """
    config = located(config)
    check_models(config)
    drafter_config, verifier_config = config.drafter.service, config.verifier.service
    batcher = Batcher(partial(load_drafter, drafter_config), drafter_config.max_queue)
    try:
        # One after the other: loading a target, transformers changes torch's default dtype for
        # every thread.
        await batcher.start()
        runner = Runner(partial(load_verifier, verifier_config))
        try:
            await runner.start()
            yield Engines(
                Tokenizer.from_file(str(config.tokenizer_file)),
                LocalDrafter(batcher),
                LocalVerifier(runner),
                runner,
                runner.info,
            )
        finally:
            await runner.stop()
    finally:
        await batcher.stop()
