"""Foredraft beside llama.cpp: the same weights, prompts and machine, in turn, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rich.progress import track

from bench.compare.cluster import decode
from bench.compare.gguf_files import TYPES, convert, type_of
from bench.compare.llama_cpp import NGRAM, LlamaClient, Variant, find, serving, speculates
from bench.compare.pairs import Pair
from bench.compare.rows import Row, Run, Setting, median_interval, row
from bench.compare.workload import AS_CONFIGURED, PLAIN
from deployments.serve.cluster import running
from foredraft.client import CompletionClient
from foredraft.errors import ConfigError

_OURS = (PLAIN, AS_CONFIGURED)


@dataclass(frozen=True, slots=True)
class Against:
    """How many times as fast ours is as theirs: the median over prompts, with its interval."""

    prompts: str
    ours: str
    theirs: str
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.prompts}: {self.ours} against llama.cpp {self.theirs}: {self.ratio:.2f}x "
            f"({self.low:.2f} to {self.high:.2f})"
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """The rows of all ways of decoding, and what they come to."""

    rows: tuple[Row, ...]
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True)
class Peers:
    """A pair, and llama.cpp's ways of serving its target."""

    pair: Pair
    server: Path
    variants: tuple[Variant, ...]

    async def measure(self) -> Beside:
        """Decode every prompt of the pair in every way at temperature 0, in turn."""
        rows: list[Row] = []
        against: list[Against] = []
        with running(self.pair.file) as cluster:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(CompletionClient(cluster.url))
                servers = {
                    one.name: await stack.enter_async_context(serving(self.server, one))
                    for one in self.variants
                }
                for prompts in self.pair.sets:
                    tokens = self.pair.plan.max_tokens
                    setting = Setting(self.pair.name, prompts.name, "cluster", 0.0, tokens)
                    ours, theirs = await _alternate(client, servers, prompts.prompts, setting)
                    rows += _rows(setting, ours, theirs)
                    against += compare(prompts.name, ours, theirs)
        return Beside(tuple(rows), tuple(against))


def find_peers(pair: Pair, server: Path | None, gguf: Path, folder: Path) -> Peers:
    """Return llama.cpp beside a pair: the file and its conversions in folder.

    Each is served plainly and, where the server can, with its own n-gram drafts. Raise ConfigError
    where the server or the file is missing.
    """
    program = find(server)
    if not gguf.is_file():
        raise ConfigError(f"--gguf names no GGUF file of the target: {gguf}", param="gguf")
    files = {type_of(gguf): gguf} | {name: convert(gguf, folder, name) for name in TYPES}
    ways = {"plain": ()} | ({"n-gram": NGRAM} if speculates(program) else {})
    variants = tuple(
        Variant(f"{name} {way}", path, options)
        for name, path in files.items()
        for way, options in ways.items()
    )
    return Peers(pair, program, variants)


def compare(
    prompts: str, ours: Mapping[str, Sequence[Run]], theirs: Mapping[str, Sequence[Run]]
) -> list[Against]:
    """Return ours against theirs: plain beside plain bf16, and both beside their fastest way."""
    best = max(theirs, key=lambda name: median(run.speed for run in theirs[name]))
    pairs = [(PLAIN.name, "BF16 plain"), (PLAIN.name, best), (AS_CONFIGURED.name, best)]
    found = []
    for mine, other in dict.fromkeys(pairs):
        ratios = [a.speed / b.speed for a, b in zip(ours[mine], theirs[other], strict=True)]
        found.append(Against(prompts, mine, other, median(ratios), *median_interval(ratios)))
    return found


async def _alternate(
    client: CompletionClient,
    servers: Mapping[str, LlamaClient],
    prompts: Sequence[tuple[int, ...]],
    setting: Setting,
) -> tuple[dict[str, list[Run]], dict[str, list[Run]]]:
    ours: dict[str, list[Run]] = {mode.name: [] for mode in _OURS}
    theirs: dict[str, list[Run]] = {name: [] for name in servers}
    for index, prompt in enumerate(track(prompts, "Beside llama.cpp", transient=True)):
        for mode in _OURS:
            ours[mode.name].append(await decode(client, prompt, setting, index, mode))
        for name, server in servers.items():
            theirs[name].append(await server.complete(prompt, setting.max_tokens))
    return ours, theirs


def _rows(
    setting: Setting, ours: Mapping[str, Sequence[Run]], theirs: Mapping[str, Sequence[Run]]
) -> list[Row]:
    """Return all ways' rows, each against our plain decoding of the same prompts."""
    plain = ours[PLAIN.name]
    peer = replace(setting, where="llama.cpp")
    return [
        *(row(setting, name, runs, plain) for name, runs in ours.items()),
        *(row(peer, name, runs, plain) for name, runs in theirs.items()),
    ]
