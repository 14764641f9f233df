"""Runs in one process: the same engines and orchestrator, without Ray, HTTP or gRPC."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from bench.compare.peers import Transformers
from bench.compare.rows import Row, Run, Setting, row
from bench.compare.workload import PLAIN, Mode
from deployments.in_process import Engines
from deployments.ingress.openai.speculative import SpeculativeOptions
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import sampling
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerStates
from orchestrator.drive.pipeline import generate
from orchestrator.request import GenerationRequest, StepEvent

# Row name, and whether drafts are looked up in the prompt.
_PEERS = (("transformers plain", False), ("transformers prompt lookup", True))


class ProcessBench:
    """Decodes prompts in this process, in every way, in turn."""

    def __init__(
        self,
        engines: Engines,
        config: OrchestratorConfig,
        peers: Transformers,
        peer_prompts: int,
    ) -> None:
        """peer_prompts is how many prompts `transformers`, which is several times slower, gets."""
        self._engines = engines
        self._config = config
        self._peers = peers
        self._peer_prompts = peer_prompts
        self._states = ControllerStates()

    async def measure(
        self, prompts: Sequence[tuple[int, ...]], setting: Setting, modes: Sequence[Mode]
    ) -> list[Row]:
        """Return a row per way of decoding, plain first, our drafters, then `transformers`."""
        runs: dict[str, list[Run]] = {}
        for index, prompt in enumerate(prompts):
            params = sampling(setting.temperature, index)
            for mode in (PLAIN, *modes):
                decoded = await self._decode(prompt, params, setting.max_tokens, mode)
                runs.setdefault(mode.name, []).append(decoded)
            for name, lookup in _PEERS if index < self._peer_prompts else ():
                answer = self._peers.run(prompt, params, setting.max_tokens, lookup)
                runs.setdefault(name, []).append(answer)
        return [
            row(setting, name, of_mode, runs[PLAIN.name][: len(of_mode)])
            for name, of_mode in runs.items()
        ]

    async def _decode(
        self, prompt: tuple[int, ...], params: SamplingParams, max_tokens: int, mode: Mode
    ) -> Run:
        engines = self._engines
        options = SpeculativeOptions.model_validate(mode.options)
        name = uuid.uuid4().hex
        request = GenerationRequest(
            session_id=name,
            prompt=prompt,
            sampling=params,
            max_new_tokens=max_tokens,
            stop_token_ids=engines.eos,
            speculate=options.enabled,
            # Each run is measured with the reading of its prompt.
            cache_salt=name,
        )
        tokens: list[int] = []
        report = None
        start = time.perf_counter()
        config = options.applied_to(self._config)
        # Requests of one kind learn from each other, as they do where they are served.
        state = self._states.of((params.temperature > 0, mode.name))
        events = generate(request, engines.drafter, engines.verifier, config, state=state)
        async for event in events:
            if isinstance(event, StepEvent):
                tokens += [committed.token for committed in event.tokens]
                seconds = time.perf_counter() - start
            else:
                report = event.report
        assert report is not None
        return Run(
            tuple(tokens),
            seconds,
            report.num_accepted,
            report.num_draft_tokens,
            report.draft_rounds,
        )
