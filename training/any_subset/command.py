"""`foredraft train any_subset`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.options import (
    EMBEDDED,
    WORK,
    CheckpointOption,
    DeviceOption,
    RanksOption,
    SeedOption,
    WorkOption,
    checked_device,
    spawn,
)


def any_subset(
    work: WorkOption = WORK,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model, if not below the work folder.")
    ] = None,
    start: Annotated[
        Path, typer.Option(help="A target whose first layers it begins with, or an any-subset one.")
    ] = EMBEDDED / "target",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Begin with random weights (Fig. 6).")
    ] = False,
    seed: SeedOption = 0,
    minutes: Annotated[float, typer.Option(help="Training time; the schedule follows it.")] = 180.0,
    steps: Annotated[int, typer.Option(min=0, help="Steps to train in place of minutes.")] = 0,
    ranks: RanksOption = 2,
    device: DeviceOption = "cpu",
    checkpoint_steps: CheckpointOption = 30,
    order: Annotated[
        str,
        typer.Option(help="Of masked tokens: lattice, by position (Eq. 4), or any (Fig. 3)."),
    ] = "lattice",
    max_given: Annotated[
        float, typer.Option(help="Greatest share of a text that is given; 0.85 in Fig. 4.")
    ] = 0.10,
    holes: Annotated[
        float, typer.Option(help="Share of texts with holes; 0 scatters as the paper does.")
    ] = 0.5,
    warmup: Annotated[
        bool, typer.Option(help="Begin with few masked tokens (App. E.2, Fig. 5).")
    ] = True,
    layers: int = 8,
    length: Annotated[int, typer.Option(help="Tokens of a text, N.")] = 256,
    batch: int = 16,
    micro_batch: int = 4,
    lr: float = 2e-3,
) -> None:
    """Train an any-subset model, or one of its ablations; resumes from its checkpoint."""
    from training.any_subset.layouts import MaskRates, Order
    from training.any_subset.train import AnySubsetRun, run_any_subset_rank, train_any_subset
    from training.embedded.target_model import TargetShape

    if not 0.01 <= max_given < 1:
        raise typer.BadParameter(f"--max-given: expected a share from 0.01 on, not {max_given}")
    if not 0 <= holes <= 1:
        raise typer.BadParameter(f"--holes: expected a share from 0 to 1, not {holes}")
    if order not in list(Order):
        raise typer.BadParameter(f"--order: expected one of {', '.join(Order)}, not {order}")
    run = AnySubsetRun(
        data=work,
        output=out or work / "any_subset" / "export",
        checkpoint=work / (out.name if out else "any_subset") / "run",
        shape=TargetShape(layers=layers, max_positions=length),
        start=None if from_scratch else start,
        minutes=minutes,
        steps=steps,
        lr=lr,
        batch=batch,
        length=length,
        micro_batch=micro_batch,
        device=checked_device(device, ranks),
        checkpoint_steps=checkpoint_steps,
        seed=seed,
        order=Order(order),
        rates=MaskRates(1 - max_given, 0.99),
        warmup=AnySubsetRun.warmup if warmup else 0.0,
        holes=holes,
    )
    if ranks == 1:
        train_any_subset(run)
    else:
        spawn(run_any_subset_rank, ranks, run)
