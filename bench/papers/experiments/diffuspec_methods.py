"""DiffuSpec Table 1: every method against plain decoding, by task family, at temperature 0."""

from __future__ import annotations

from statistics import fmean, median

from bench.papers import plots, theirs
from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, higher, highest, pays, printed
from bench.papers.experiment import Experiment, family_table, raw
from bench.papers.report import Section, Table, number, times
from bench.papers.settings import SEARCH, SPS_LENGTHS, adl, fixed
from bench.papers.stats import MAT, SPEED, Measure, families, of_family, speedup, values
from bench.papers.ways import Column, Way, peer

_LOOKUP = "PLD (prompt lookup)"
SPS = "SPS (`ar`: the same network, a pass for each token, whole block)"
_SHORT = {k: f"SPS, k={k}" for k in SPS_LENGTHS}
_SPECDIFF = "SpecDiff (argmax, whole block)"
_MINIONS = "Minions (CPS, length by acceptance)"
_DIFFUSPEC = "DiffuSpec (CPS, ADL)"
_TREE = "tree, 11 nodes (ours)"
_SERVED = "as served (ours)"
_NAMED = {
    _LOOKUP: "PLD",
    SPS: "SPS",
    _SPECDIFF: "SpecDiff",
    _MINIONS: "Minions",
    _DIFFUSPEC: "DiffuSpec",
}


async def table_1(experiment: Experiment) -> list[Section]:
    """Measure every method against plain decoding, by task family."""
    pair, plan = experiment.pair, experiment.plan
    searching = await pair.drafter(cps=SEARCH)
    whole = fixed(pair.block)
    ways = [pair.way(_LOOKUP, proposal="lookup", adl=whole)]
    if pair.text_alone:
        ways += [
            pair.way(SPS, proposal="ar", adl=whole),
            *(pair.way(name, proposal="ar", adl=fixed(k)) for k, name in _SHORT.items()),
        ]
    ways += [
        pair.way(_SPECDIFF, proposal="argmax", adl=whole),
        pair.way(_MINIONS, searching, proposal="cps", adl={"name": "acceptance"}),
        pair.way(_DIFFUSPEC, searching, proposal="cps", adl=adl(pair.block)),
        pair.way("coupled walk, whole block (ours)", proposal="coupled", adl=whole),
        pair.way(_TREE, proposal="tree", adl=fixed(11)),
        pair.way(_SERVED),
    ]
    columns = await alternate(pair, experiment.prompts, ways, 0.0, plan.tokens)
    peers = _peers(experiment)
    few = limited(experiment.prompts, plan.peers)
    columns |= await alternate(pair, few, peers, 0.0, plan.peers.tokens)
    means = {name: theirs.DIFFUSPEC_TABLE_1[of][1] for name, of in _NAMED.items()}
    groups = families(columns[_DIFFUSPEC])
    path = experiment.plot("diffuspec_table1")
    speeds = {
        way.name.replace("`", ""): [
            median(values(of_family(columns[way.name], group), speedup)) for group in groups
        ]
        for way in ways
    }
    plots.bars(path, speeds, groups, "speedup against plain decoding")
    return [
        Section(
            "DiffuSpec Table 1: all methods against plain decoding",
            f"Temperature 0, batch 1, {plan.tokens} tokens after each of {len(experiment.prompts)} "
            f"prompts ({len(few)} for `transformers`). A family's figure is the median over its "
            "prompts of tokens/s over those of the plain run next to it; the mean is over "
            "families. `transformers` runs the same weights in bf16. Of the paper's means, "
            "SpecDiff's 2.69x is not that of its tasks, 2.43x.",
            (family_table(columns, [*ways, *peers], 0.0, means), _their_table_1()),
            _claims_1(columns),
            (path.name,),
            raw(columns),
        )
    ]


def _peers(experiment: Experiment) -> list[Way]:
    """Return `transformers`' ways; its assistant is the target's own first layers, a quarter."""
    peers = experiment.peers
    layers = max(1, peers.layers // 4)
    return [
        peer("transformers, plain", peers),
        peer("transformers, prompt lookup", peers, lookup=True),
        peer(
            f"transformers, assisted generation (early exit after {layers} of {peers.layers} "
            "layers)",
            peers,
            early_exit=layers,
        ),
    ]


def _their_table_1() -> Table:
    rows = tuple(
        (name, *map(times, tasks), times(fmean(tasks)), times(mean.speedup), number(mean.mat))
        for name, (tasks, mean) in theirs.DIFFUSPEC_TABLE_1.items()
    )
    head = ("their method", *theirs.DIFFUSPEC_TASKS, "mean of these", "mean printed", "MAT")
    return Table(head, rows, "Theirs, as printed:")


def _claims_1(columns: dict[str, Column]) -> tuple[Claim, ...]:
    diffuspec = columns[_DIFFUSPEC]
    named = {_NAMED[name]: columns[name] for name in (_LOOKUP, _SPECDIFF, _MINIONS)}
    sps = {name: columns[name] for name in (SPS, *_SHORT.values()) if name in columns}
    return (
        pays("DiffuSpec is faster than plain decoding", _printed(SPEED, "DiffuSpec"), diffuspec),
        highest(
            "DiffuSpec is the fastest of the methods",
            _printed(SPEED, *_NAMED.values()),
            diffuspec,
            named | sps,
            SPEED,
        ),
        higher(
            "DiffuSpec accepts more than prompt lookup",
            _printed(MAT, "DiffuSpec", "PLD"),
            diffuspec,
            columns[_LOOKUP],
            MAT,
        ),
        higher(
            "following L_gen and L_acc beats following acceptance alone",
            _printed(SPEED, "DiffuSpec", "Minions"),
            diffuspec,
            columns[_MINIONS],
            SPEED,
        ),
        *(_against_sps(columns, sps) if sps else ()),
    )


def _against_sps(columns: dict[str, Column], sps: dict[str, Column]) -> tuple[Claim, ...]:
    return (
        highest(
            "a diffusion drafter is faster than the autoregressive one at any length",
            _printed(SPEED, "SpecDiff", "SPS"),
            columns[_SPECDIFF],
            sps,
            SPEED,
        ),
        higher(
            "DiffuSpec accepts more than SPS of whole blocks",
            _printed(MAT, "DiffuSpec", "SPS"),
            columns[_DIFFUSPEC],
            sps[SPS],
            MAT,
        ),
    )


def _printed(measure: Measure, *names: str) -> str:
    return printed(measure, {name: theirs.DIFFUSPEC_TABLE_1[name][1] for name in names})
