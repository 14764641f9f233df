"""`foredraft train block_dlm` and `foredraft train graph`."""

from __future__ import annotations

from itertools import groupby
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


def block_dlm(
    work: WorkOption = WORK,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model, if not below the work folder.")
    ] = None,
    start: Annotated[
        Path, typer.Option(help="A target whose layers, before it was grown, it starts from.")
    ] = EMBEDDED / "target",
    seed: SeedOption = 0,
    minutes: Annotated[float, typer.Option(help="Training time; the schedule follows it.")] = 180.0,
    part_minutes: Annotated[
        float | None, typer.Option(help="End this part then; the same command goes on with it.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps to train instead of `minutes`.")] = 0,
    ranks: RanksOption = 2,
    device: DeviceOption = "cpu",
    checkpoint_steps: CheckpointOption = 50,
    layers: int = 8,
    block_length: Annotated[int, typer.Option(help="Slots of a block (L).")] = 8,
    length: Annotated[
        int, typer.Option(help="Tokens of a text; its rows are twice as many.")
    ] = 256,
    batch: int = 16,
    micro_batch: int = 4,
    lr: float = 2e-3,
) -> None:
    """Train a block-diffusion language model; resumes from its checkpoint."""
    from training.block_dlm.train import BlockDlmRun, run_rank, train

    name = f"block_dlm_{block_length}"
    run = BlockDlmRun(
        data=work,
        start=start,
        output=out or work / name / "export",
        checkpoint=work / name / "run",
        layers=layers,
        block_length=block_length,
        length=length,
        minutes=minutes,
        steps=steps,
        part_minutes=float("inf") if part_minutes is None else part_minutes,
        lr=lr,
        batch=batch,
        micro_batch=micro_batch,
        device=checked_device(device, ranks),
        checkpoint_steps=checkpoint_steps,
        seed=seed,
    )
    if ranks == 1:
        train(run)
    else:
        spawn(run_rank, ranks, run)


def graph(
    model: Annotated[Path, typer.Argument(help="Folder of a block-diffusion model.")],
    work: WorkOption = WORK,
    static: Annotated[
        int | None, typer.Option(help="Slots that a step fills, instead of a threshold.", min=1)
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Probability above which slots are filled.", min=0)
    ] = 0.9,
    temperature: Annotated[float, typer.Option(min=0)] = 1.0,
    greedy_ranks: Annotated[
        bool, typer.Option(help="Rank without noise above temperature 0, as the paper does.")
    ] = False,
    corpus: Annotated[
        str, typer.Option(help="Prompts of the standard library, core, or of packages, rest.")
    ] = "core",
    size: Annotated[int, typer.Option(help="Nodes of the graph.", min=1)] = 10,
    lookahead: Annotated[int, typer.Option(help="Steps that a node may be ahead.", min=1)] = 5,
    prompts: Annotated[int, typer.Option(min=1)] = 50,
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 128,
    max_tokens: Annotated[int, typer.Option(min=1)] = 64,
) -> None:
    """Calibrate a block-diffusion model's draft graph, written beside its weights."""
    from denoiser_service.core.graph import RankedBy, by_step
    from foredraft.denoising import Dynamic, Static
    from training.block_dlm.graph import GraphRun, calibrate

    if corpus not in ("core", "rest"):
        raise typer.BadParameter(f"--corpus: expected core or rest, not {corpus}")
    run = GraphRun(
        model=model,
        data=work,
        unmasking=Static(static) if static else Dynamic(threshold),
        temperature=temperature,
        corpus=corpus,
        ranked_by=RankedBy.GREEDY if greedy_ranks else RankedBy.NOISE,
        size=size,
        lookahead=lookahead,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
    )
    found, file = calibrate(run)
    for node in found.nodes:
        steps = groupby(by_step(node.formula), key=lambda each: each.after)
        pairs = (" ".join(f"({c.position},{c.vocabulary})" for c in step) for _, step in steps)
        typer.echo(f"level {node.level}, {node.count} times: {' then '.join(pairs)}")
    typer.echo(f"{len(found.nodes)} nodes in {file}, of {found.anchors} anchors")
