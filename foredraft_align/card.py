"""The model card that is written beside a drafter."""

from __future__ import annotations

from pathlib import Path

from foredraft_align.data.select import Selection
from foredraft_align.loop.train import TrainPlan
from foredraft_align.progress import read_log


def write_card(
    out: Path, target: Path, reads: str, selection: Selection, coverage: float, plan: TrainPlan
) -> None:
    """Write MODEL_CARD.md from what a run stored; reads is what the drafter reads."""
    steps = read_log(plan.output / "run" / "log.jsonl")
    last = steps[-1]
    held_out = [each.held_out for each in steps if each.held_out is not None]
    found = f"{held_out[-1]:.2f}" if held_out else "not measured"
    (out / "MODEL_CARD.md").write_text(
        f"""# A drafter for {target.name}

Made by `foredraft align`. {reads}

| | |
|---|---|
| training texts, all of them the target's own | {len(selection.train)} |
| dropped: duplicates / near evaluation prompts / empty | {selection.duplicates} / \
{selection.overlaps} / {selection.empty} |
| share of their tokens that the head scores | {coverage:.1%} |
| steps x texts, mask slots of each text | {last.step} x {plan.batch}, {plan.rows} |
| training time | {last.elapsed / 60:.0f} minutes |
| accepted tokens per round on held-out greedy texts, a path of {plan.block_sizes[-1]}, bonus \
excluded | {found} |

It drafts; what is served is the target's text whatever the drafter is.
"""
    )
