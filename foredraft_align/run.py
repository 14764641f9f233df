"""The stages of `foredraft align`: the target's texts, their selection, training, the card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from drafter_service.models.embedded.block_causal import BlockCausalDLM
from foredraft.errors import ConfigError
from foredraft.model_files import verify_files
from foredraft_align.card import write_card
from foredraft_align.curves import draw_curves
from foredraft_align.data.chat import ChatTokenizer
from foredraft_align.data.select import Selection, of_evaluation, select, shortlist
from foredraft_align.data.store import Store
from foredraft_align.data.write import WritePlan, read_prompts
from foredraft_align.drafter.start import (
    drafter_config,
    drafter_from_drafter,
    drafter_from_target,
    layers_to_read,
)
from foredraft_align.loop.train import Progress, TrainPlan
from foredraft_align.workers import Workers

HELD_OUT = 48
_SELECTED = "selected.json"


@dataclass(frozen=True, slots=True)
class AlignPlan:
    """What `foredraft align` was asked for; see its options."""

    target: Path
    out: Path
    kind: str
    exclude: tuple[Path, ...]
    layers: int
    block: int
    shortlist: int
    start: Path | None
    seed: int


def align(
    plan: AlignPlan,
    write: WritePlan,
    train: TrainPlan,
    workers: Workers,
    say: Callable[[str], None],
    report: Callable[[Progress], None],
) -> None:
    """Run all stages; each that was done before is taken from the output folder.

    Raise WeightsError or ConfigError before anything is written where the target cannot be used.
    """
    verify_files(plan.target)
    tokenizer = ChatTokenizer(plan.target)
    layer_ids = layers_to_read(_num_layers(plan.target)) if plan.kind == "features" else ()
    config = drafter_config(plan.target, plan.layers, plan.block, 0, layer_ids)
    say(f"the target writes {write.shards * write.texts} texts")
    workers.write(replace(write, layer_ids=layer_ids))
    selection, token_ids, coverage = _selected(plan, write.folder, tokenizer, config.eos_token_id)
    say(
        f"{len(selection.train)} texts to train on, {len(selection.held_out)} held out; dropped "
        f"{selection.duplicates} duplicates, {selection.overlaps} too near to evaluation, "
        f"{selection.empty} empty; {len(token_ids)} tokens cover {coverage:.1%} of the answers"
    )
    if plan.start is None:
        listed = replace(config, shortlist_size=len(token_ids))
        make: Callable[[], BlockCausalDLM] = partial(
            drafter_from_target, listed, plan.target, token_ids, plan.seed
        )
    else:
        make = partial(drafter_from_drafter, plan.start, plan.target, plan.layers)
    chosen = replace(train, texts=write.folder, train=selection.train, held_out=selection.held_out)
    workers.train(chosen, make, report)
    draw_curves(plan.out / "run" / "log.jsonl", plan.out / "curves.png")
    write_card(plan.out, plan.target, plan.kind, selection, coverage, chosen)
    say(f"the drafter is in {plan.out}")


def forget(out: Path) -> None:
    """Drop an earlier training in a folder; the target's texts stay."""
    shutil.rmtree(out / "run", ignore_errors=True)


def _selected(
    plan: AlignPlan, texts: Path, tokenizer: ChatTokenizer, eos: int
) -> tuple[Selection, tuple[int, ...], float]:
    """Return what is trained on and scored, decided once for a run."""
    file = plan.out / "run" / _SELECTED
    if file.is_file():
        stored = json.loads(file.read_text())
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in stored["selection"].items()}
        return Selection(**fields), tuple(stored["token_ids"]), stored["coverage"]
    store = Store(texts)
    evaluation = (tokenizer.ids(prompt) for prompt in _prompts(plan.exclude))
    selection = select(store, of_evaluation(evaluation), HELD_OUT, plan.seed)
    if len(selection.train) < 2:
        raise ConfigError("too few texts are left to train on; raise texts", param="texts")
    vocab = int(json.loads((plan.target / "config.json").read_text())["vocab_size"])
    size = plan.shortlist // 64 * 64
    token_ids, coverage = shortlist(store, selection.train, size, vocab, (eos,))
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"selection": asdict(selection), "token_ids": token_ids, "coverage": coverage}
    file.write_text(json.dumps(found) + "\n")
    return selection, token_ids, coverage


def _prompts(files: Iterable[Path]) -> Iterable[str]:
    for file in files:
        yield from read_prompts(file)


def _num_layers(target: Path) -> int:
    return int(json.loads((target / "config.json").read_text())["num_hidden_layers"])
