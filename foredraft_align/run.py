"""The stages of `foredraft align`: the target's texts, their selection, training, the card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from foredraft.errors import ConfigError
from foredraft.model_files import verify_files
from foredraft_align.card import write_card
from foredraft_align.curves import draw_curves
from foredraft_align.data.chat import ChatTokenizer
from foredraft_align.data.select import Selection, of_evaluation, select, shortlist
from foredraft_align.data.store import Store
from foredraft_align.data.write import WritePlan, read_prompts
from foredraft_align.drafter.stored import ends_of
from foredraft_align.kinds import KINDS, Shape
from foredraft_align.loop.train import Progress, TrainPlan
from foredraft_align.workers import Workers

HELD_OUT = 48
_SELECTED = "selected.json"
_LEAST_ANSWER = 16


@dataclass(frozen=True, slots=True)
class AlignPlan:
    """What `foredraft align` was asked for; see its options."""

    shape: Shape
    out: Path
    kind: str
    exclude: tuple[Path, ...]


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
    shape, kind = plan.shape, KINDS[plan.kind]
    verify_files(shape.target)
    tokenizer = ChatTokenizer(shape.target)
    _check_lengths(write, tokenizer)
    kind.check(shape)
    layer_ids, sizes, ends = kind.layer_ids(shape), _sizes(shape.target), ends_of(shape.target)
    say(f"the target writes {write.shards * write.texts} texts")
    workers.write(replace(write, layer_ids=layer_ids))
    _check_states(write.folder, len(layer_ids) * sizes.hidden)
    listed = kind.num_listed(shape)
    selection, token_ids, coverage = _selected(plan, write.folder, tokenizer, listed, ends[0])
    say(
        f"{len(selection.train)} texts to train on, {len(selection.held_out)} held out; dropped "
        f"{selection.duplicates} duplicates, {selection.overlaps} too near to evaluation, "
        f"{selection.empty} empty; {len(token_ids)} tokens cover {coverage:.1%} of the answers"
    )
    make = kind.make(shape, token_ids)
    chosen = replace(train, texts=write.folder, train=selection.train, held_out=selection.held_out)
    workers.train(chosen, make, report)
    draw_curves(plan.out / "run" / "log.jsonl", plan.out / "curves.png")
    write_card(plan.out, shape.target, kind.reads, selection, coverage, chosen)
    say(f"the drafter is in {plan.out}")


def prepare(out: Path, *, resume: bool, fresh: bool) -> None:
    """Make a folder ready for a training; the target's texts in it stay.

    Raise ConfigError where an earlier training lies there, unless it is resumed or dropped.
    """
    if resume:
        return
    if not fresh and any((out / "run").glob("step-*")):
        raise ConfigError(
            f"{out} holds a training: go on with --resume, or drop it with --fresh", param="out"
        )
    shutil.rmtree(out / "run", ignore_errors=True)


def _check_lengths(write: WritePlan, tokenizer: ChatTokenizer) -> None:
    """Raise ConfigError where the longest prompt leaves no room for an answer."""
    form = tokenizer.format
    least = len(form.before) + write.max_question + len(form.between) + _LEAST_ANSWER
    if write.max_tokens < least:
        raise ConfigError(
            f"max_tokens is {write.max_tokens}: with prompts of {write.max_question} tokens it "
            f"must be at least {least}",
            param="max_tokens",
        )


def _check_states(texts: Path, width: int) -> None:
    """Raise ConfigError where the texts were written for a drafter of another kind."""
    found = Store(texts).text(0).states.shape[1]
    if found != width:
        raise ConfigError(
            f"the texts in {texts} have {found} hidden values for each token, the drafter reads "
            f"{width}: write them afresh in another folder",
            param="kind",
        )


def _selected(
    plan: AlignPlan, texts: Path, tokenizer: ChatTokenizer, listed: int, eos: int
) -> tuple[Selection, tuple[int, ...], float]:
    """Return what is trained on and scored, decided once for a run."""
    file = plan.out / "run" / _SELECTED
    if file.is_file():
        stored = json.loads(file.read_text())
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in stored["selection"].items()}
        return Selection(**fields), tuple(stored["token_ids"]), stored["coverage"]
    store = Store(texts)
    evaluation = (tokenizer.ids(prompt) for prompt in _prompts(plan.exclude))
    selection = select(store, of_evaluation(evaluation), HELD_OUT, plan.shape.seed)
    if len(selection.train) < 2:
        raise ConfigError("too few texts are left to train on; raise texts", param="texts")
    vocab = _sizes(plan.shape.target).vocab
    token_ids, coverage = shortlist(store, selection.train, listed, vocab, (eos,))
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"selection": asdict(selection), "token_ids": token_ids, "coverage": coverage}
    file.write_text(json.dumps(found) + "\n")
    return selection, token_ids, coverage


def _prompts(files: Iterable[Path]) -> Iterable[str]:
    for file in files:
        yield from read_prompts(file)


class _Sizes(NamedTuple):
    vocab: int
    hidden: int


def _sizes(target: Path) -> _Sizes:
    raw = json.loads((target / "config.json").read_text())
    return _Sizes(int(raw["vocab_size"]), int(raw["hidden_size"]))
