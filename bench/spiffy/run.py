"""`foredraft bench spiffy`: a diffusion target with draft graphs, beside its plain unmasking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from bench.spiffy.family import Family
from bench.spiffy.printed import PrintedDrafting
from bench.spiffy.quality import Parsed
from bench.spiffy.table import Row, Sample, row
from bench.spiffy.ways import DYNAMIC, ONE_BY_ONE, Denoised, Way, denoise
from denoiser_service.config import DenoiserConfig
from denoiser_service.engine import DenoiserEngine
from denoiser_service.load import load_engine
from foredraft.pacing.config import PaceConfig
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import rows as held_out
from foredraft_cli.prompts.held_out import spread
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Unpriced

TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class SpiffyPlan:
    """Prompts, the tokens after each, and how many are denoised at once; a modelled device whose
    time each pass takes, if any.
    """

    prompts: int = 60
    prompt_tokens: int = 64
    max_tokens: int = 64
    sessions: int = 1
    drafts: tuple[int, ...] = (1, 2, 3)
    static: bool = True
    development: bool = False
    family: Family = Family.ALL
    pace: PaceConfig | None = None

    @property
    def ways(self) -> list[Way]:
        """Each unmasking without drafts, with each number of them, ours and the paper's, and with
        those that pay.
        """
        plain = [ONE_BY_ONE, DYNAMIC] if self.static else [DYNAMIC]
        counts = (0, *self.drafts)
        every = [way._replace(drafts=count) for way in plain for count in counts]
        printed = [way._replace(drafts=each, printed=True) for way in plain for each in self.drafts]
        priced = [way._replace(drafts=max(counts), priced=True) for way in plain]
        return [*every, *printed, *priced]


QUICK = SpiffyPlan(prompts=8, drafts=(1, 3))


def measure(
    model: Path, plan: SpiffyPlan, tokenizer: Path, say: Callable[[str], None]
) -> list[Row]:
    """Denoise after the prompts in each way, in turn, and return the rows."""
    config = DenoiserConfig(model=model, numerics="exact", threads=2, pace=plan.pace)
    every = load_engine(config, _unpriced)
    printed = load_engine(config, _unpriced, lambda graph: partial(PrintedDrafting, graph))
    priced = load_engine(config)

    def engine(way: Way) -> DenoiserEngine:
        return priced if way.priced else printed if way.printed else every

    read = Tokenizer.from_file(str(tokenizer))
    groups = _groups(plan, read)
    found = []
    for temperature in TEMPERATURES:
        samples: defaultdict[Way, list[Sample]] = defaultdict(list)
        for number, (module, prompts) in enumerate(groups):
            ran = _denoised(engine, plan, prompts, number, temperature)
            for way, each in ran.items():
                parsed = _parsed(read, prompts, each)
                samples[way].append(Sample(module, each, ran[way.vanilla], ran[DYNAMIC], parsed))
            say(f"T {temperature:g}: {number + 1} of {len(groups)}")
        block = every.info.block_length
        found += [row(way, block, temperature, samples[way]) for way in plan.ways]
    return found


def _unpriced(costs: PassCosts) -> Unpriced:
    """Return what buys every draft: the tables are by their number."""
    return Unpriced()


def _denoised(
    engine: Callable[[Way], DenoiserEngine],
    plan: SpiffyPlan,
    prompts: list[tuple[int, ...]],
    number: int,
    temperature: float,
) -> dict[Way, Denoised]:
    """Denoise one group in each way, beginning with another one for each group."""
    first = number % len(plan.ways)
    sampling = [SamplingParams(temperature, seed=1000 * number + at) for at in range(len(prompts))]
    return {
        way: denoise(engine(way), prompts, way, sampling, plan.max_tokens)
        for way in (*plan.ways[first:], *plan.ways[:first])
    }


def _parsed(read: Tokenizer, prompts: list[tuple[int, ...]], found: Denoised) -> Parsed:
    parsed = Parsed()
    for prompt, text in zip(prompts, found.texts, strict=True):
        parsed = parsed.and_then(*(str(read.decode(list(each))) for each in (prompt, text)))
    return parsed


def _groups(plan: SpiffyPlan, tokenizer: Tokenizer) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Return prompts that are denoised at once, with the module of the first."""
    found = []
    texts = [each for each in held_out(plan.development) if plan.family.has(each["module"])]
    for each in spread(texts, plan.prompts):
        tokens = tokenizer.encode(each["text"], add_special_tokens=False).ids
        found.append((each["module"], tuple(tokens[: plan.prompt_tokens])))
    parts = [found[at : at + plan.sessions] for at in range(0, len(found), plan.sessions)]
    return [(part[0][0], [prompt for _, prompt in part]) for part in parts]
