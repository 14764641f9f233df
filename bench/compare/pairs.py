"""The pairs that are measured, each on its own prompts: in this process and through a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare.cluster import measure
from bench.compare.rows import Row, Setting
from bench.compare.workload import Plan, plan
from deployments.config import CHAT_FILE, EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import running
from foredraft.chat_template import read_chat_template
from foredraft.client import CompletionClient
from foredraft.errors import ConfigError, WeightsError
from foredraft_cli.prompts.held_out import TEMPERATURES
from foredraft_cli.prompts.sets import PromptSet, prompt_sets

STANDARD = (("embedded", EMBEDDED_FILE), ("smollm2", CHAT_FILE))


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair's name in the rows, its configuration, its prompts and how much is measured."""

    name: str
    file: ServeFile
    sets: tuple[PromptSet, ...]
    plan: Plan

    @property
    def chat(self) -> bool:
        """Whether the target answers chat prompts."""
        return any(prompts.name == "chat" for prompts in self.sets)


def standard_pairs(quick: bool) -> tuple[list[Pair], list[str]]:
    """Return the pairs whose models are there, and a line for each pair or set left out."""
    pairs, left_out = [], []
    for name, config in STANDARD:
        try:
            pair, lines = load_pair(name, config, quick)
        except (ConfigError, WeightsError) as error:
            left_out.append(f"the pair {name} is left out: {error}")
            continue
        pairs.append(pair)
        left_out += lines
    return pairs, left_out


def load_pair(
    name: str | None, config: Path, quick: bool, own: Path | None = None
) -> tuple[Pair, list[str]]:
    """Return a configuration's pair, and a line for each set of prompts left out.

    name is by default the application's; own is a file of prompts to use instead of the standard
    ones. Raise ConfigError where the file, a model or the prompts cannot be used.
    """
    # Imported here: transformers takes seconds, and the command line's help needs none of it.
    from deployments.preflight import check_models
    from verifier_service.models.checkpoint import load_config, longest_text

    file = read(config)
    args = file.application.args
    check_models(args)
    chosen = plan(read_chat_template(args.tokenizer_file.parent) is not None, quick)
    max_len = longest_text(load_config(args.verifier.service.model))
    sets, left_out = prompt_sets(args.tokenizer_file, max_len, chosen.count, chosen.max_tokens, own)
    return Pair(name or args.name, file, tuple(sets), chosen), left_out


async def measure_pairs(pairs: Sequence[Pair]) -> list[Row]:
    """Return the rows of all pairs, one pair after the other."""
    rows: list[Row] = []
    for pair in pairs:
        if pair.plan.peer_prompts:
            rows += await _in_process(pair)
        rows += await _through_cluster(pair)
    return rows


async def _in_process(pair: Pair) -> list[Row]:
    # Imported here: only this part needs torch and both engines in this process.
    from bench.compare.peers import Transformers
    from bench.compare.process import ProcessBench
    from deployments.in_process import engines

    config = pair.file.application.args
    rows: list[Row] = []
    async with engines(config) as loaded:
        peers = Transformers(str(config.verifier.service.model), loaded.eos)
        bench = ProcessBench(loaded, config.orchestrator, peers, pair.plan.peer_prompts)
        for prompts, setting in _settings(pair, "process"):
            rows += await bench.measure(prompts.prompts, setting, pair.plan.modes)
    return rows


async def _through_cluster(pair: Pair) -> list[Row]:
    rows: list[Row] = []
    with running(pair.file) as cluster:
        async with CompletionClient(cluster.url) as client:
            for prompts, setting in _settings(pair, "cluster"):
                rows += await measure(client, prompts.prompts, setting, pair.plan.modes)
    return rows


def _settings(pair: Pair, where: str) -> list[tuple[PromptSet, Setting]]:
    return [
        (prompts, Setting(pair.name, prompts.name, where, temperature, pair.plan.max_tokens))
        for prompts in pair.sets
        for temperature in TEMPERATURES
    ]
