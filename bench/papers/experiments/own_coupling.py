"""Beyond the papers: how often shared noise makes drafter and target agree, against its bounds.

Two Gumbel-max draws from p and q with the same noise agree with probability at least
(1 - TV) / (1 + TV) and at most 1 - TV, TV being their total variation distance (Daliri et al. 2025,
arXiv 2408.07978).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.papers import plots
from bench.papers.alternate import limited
from bench.papers.claims import Claim, above
from bench.papers.experiment import Experiment
from bench.papers.inference.bootstrap import estimate, quotient
from bench.papers.report import Section, Table, number
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.lattice import BlockScores
from foredraft.noise.gumbel import gumbel
from foredraft_cli.prompts.held_out import sampling
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc

Floats = npt.NDArray[np.float64]

_TEMPERATURES = (0.6, 0.8, 1.0)
_SLOTS = 8
_SPACING = 12
_BINS = 10


@dataclass(frozen=True, slots=True)
class Place:
    """The two distributions at one place of a text, over the whole vocabulary."""

    p: Floats
    q: Floats
    module: str = ""

    @property
    def distance(self) -> float:
        """Their total variation distance."""
        return float(np.abs(self.p - self.q).sum() / 2)


@dataclass(frozen=True, slots=True)
class Agreement:
    """One place: TV, and the share of draws with the same noise that gave the same token."""

    distance: float
    share: float
    module: str = ""


def bounds(distance: float) -> tuple[float, float]:
    """Return the least and the most probable agreement at a total variation distance."""
    return (1 - distance) / (1 + distance), 1 - distance


def agreements(places: Sequence[Place], draws: int) -> list[Agreement]:
    """Return each place's agreement over so many draws; place i draws as position i of a text."""
    with np.errstate(divide="ignore"):
        log_p = np.log(np.stack([place.p for place in places]))
        log_q = np.log(np.stack([place.q for place in places]))
    positions, tokens = np.arange(len(places)), np.arange(log_p.shape[1])
    same = np.zeros(len(places))
    for seed in range(draws):
        noise = gumbel(seed, positions, tokens)
        same += (log_p + noise).argmax(1) == (log_q + noise).argmax(1)
    return [
        Agreement(place.distance, share, place.module)
        for place, share in zip(places, (same / draws).tolist(), strict=True)
    ]


async def coupling(experiment: Experiment) -> list[Section]:
    """Measure the agreement at places of the target's own texts, at three temperatures."""
    pair, plan = experiment.pair, experiment.plan
    prompts = limited(experiment.prompts, plan.sweep)
    found: dict[float, list[Agreement]] = {}
    for temperature in _TEMPERATURES:
        places: list[Place] = []
        for index, prompt in enumerate(prompts):
            text = pair.encode(prompt.text)
            run = await pair.plain.decode(text, sampling(temperature, index), plan.sweep.tokens)
            models = pair.models()
            whole = [*text, *run.run.tokens]
            places += _places(*models, whole, len(text), temperature, prompt.module)
        found[temperature] = agreements(places, plan.coupling_draws)
    path = experiment.plot("own_coupling")
    plots.scatter(
        path,
        {f"temperature {t:g}": [(a.distance, a.share) for a in each] for t, each in found.items()},
        {"(1 - TV) / (1 + TV)": lambda x: bounds(x)[0], "1 - TV": lambda x: bounds(x)[1]},
        ("total variation distance of drafter and target", "agreement of draws"),
    )
    every = [each for agreed in found.values() for each in agreed]
    return [
        Section(
            "Shared noise: agreement against its bounds",
            f"At {len(every)} places of the target's own texts after {len(prompts)} prompts, "
            f"{_SPACING} tokens apart, the target's distribution and the drafter's at the first "
            f"{_SLOTS} slots of a block, given the tokens before; {plan.coupling_draws} draws of "
            "each place with shared noise. Rows are means over places of like distance.",
            (_table(every), _by_temperature(found)),
            _claims(every),
            (path.name,),
            {str(t): [(a.distance, a.share) for a in each] for t, each in found.items()},
            heading="what should be seen",
        )
    ]


def _places(
    drafter: DiffusionLM,
    target: PagedModel,
    text: Sequence[int],
    prompt: int,
    temperature: float,
    module: str,
) -> Iterator[Place]:
    """Yield the distributions at places of a text behind its prompt."""
    blocks = alloc(target, len(text))
    try:
        logits = target.forward([Segment(blocks, 0, text, len(text))])
    finally:
        target.pool.give(blocks)
    for at in range(prompt, len(text) - _SLOTS, _SPACING):
        [scores] = drafter.draft([BlockRequest(0, 0, tuple(text[:at]), _SLOTS)])
        for place, q in enumerate(_drafted(scores, text[at:], logits.shape[1], temperature)):
            p = _softmax(logits[at + place - 1].astype(np.float64) / temperature)
            yield Place(p, q, module)


def _drafted(
    scores: BlockScores, truth: Sequence[int], vocab: int, temperature: float
) -> Iterator[Floats]:
    """Yield q of each slot given the text's token before, as far as that is a candidate."""
    before = 0
    for slot, row in enumerate(scores.tokens):
        logits = scores.log_q[slot].astype(np.float64)
        if scores.edge is not None:
            logits = logits + scores.edge[slot, before]
        q = np.zeros(vocab)
        q[row] = _softmax(logits / temperature)
        yield q
        columns = np.flatnonzero(row == truth[slot])
        if not columns.size:
            return
        before = int(columns[0])


def _softmax(logits: Floats) -> Floats:
    mass: Floats = np.exp(logits - logits.max())
    mass /= mass.sum()
    return mass


def _table(every: Sequence[Agreement]) -> Table:
    rows = []
    for index in range(_BINS):
        low, high = index / _BINS, (index + 1) / _BINS
        inside = [a for a in every if low <= a.distance < high or a.distance == high == 1]
        if inside:
            least, most = np.mean([bounds(a.distance) for a in inside], axis=0)
            share = np.mean([a.share for a in inside])
            cells = (number(float(value)) for value in (least, share, most))
            rows.append((f"{low:.1f} to {high:.1f}", str(len(inside)), *cells))
    head = ("TV", "places", "(1 - TV) / (1 + TV)", "agreement", "1 - TV")
    return Table(head, tuple(rows))


def _by_temperature(found: dict[float, list[Agreement]]) -> Table:
    rows = tuple(
        (
            f"{t:g}",
            number(float(np.mean([a.distance for a in each]))),
            *(
                number(float(np.mean(values)))
                for values in (
                    [bounds(a.distance)[0] for a in each],
                    [a.share for a in each],
                    [bounds(a.distance)[1] for a in each],
                )
            ),
        )
        for t, each in found.items()
    )
    head = ("temperature", "mean TV", "(1 - TV) / (1 + TV)", "agreement", "1 - TV")
    return Table(head, rows, "Means over all places:")


def _claims(every: Sequence[Agreement]) -> tuple[Claim, ...]:
    """Return the claim on where between its two proven bounds agreement lies."""
    rows = []
    for each in every:
        least, most = bounds(each.distance)
        rows.append((each.module, (each.share - least, most - least)))
    found = estimate(rows, quotient)
    return (
        above(
            "agreement is nearer to 1 - TV, what rejection accepts, than to the least proven",
            "-",
            f"{found.value:.0%} of the way from the least to the most, over {len(every)} places",
            found,
            0.5,
        ),
    )
