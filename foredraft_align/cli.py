"""`foredraft align`: teach a drafter for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foredraft.errors import ConfigError

app = typer.Typer(help="Teach a block-diffusion drafter for a target.", add_completion=False)


@app.command()
def main(
    target: Annotated[Path, typer.Option(help="Folder of the target.")],
    out: Annotated[Path, typer.Option(help="Folder of the drafter, and of what it is made from.")],
    kind: Annotated[
        Literal["tokens", "features", "sdar"],
        typer.Option(
            help="What the drafter reads: tokens, or the target's hidden states too; or tokens, in "
            "SDAR's public format."
        ),
    ] = "tokens",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON lines with a prompt each, for half of the texts.")
    ] = None,
    exclude: Annotated[
        list[Path] | None,
        typer.Option(help="JSON lines with evaluation prompts; texts near them are dropped."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Training time.")] = 60.0,
    steps: Annotated[int, typer.Option(min=0, help="Steps to train instead of minutes.")] = 0,
    texts: Annotated[int, typer.Option(min=8, help="Texts that the target writes.")] = 8192,
    max_tokens: Annotated[int, typer.Option(min=32, help="Most tokens of a text.")] = 448,
    max_prompt: Annotated[int, typer.Option(min=4, help="Most tokens of a text's prompt.")] = 200,
    shortlist: Annotated[
        int, typer.Option(min=0, help="Tokens that the head scores, 0 for all.")
    ] = 8192,
    objective: Annotated[
        Literal["decay", "deer"],
        typer.Option(help="Slots that weigh less and less, or DEER's two stages."),
    ] = "decay",
    alpha: Annotated[float, typer.Option(min=1, help="Of DEER's second stage.")] = 1.01,
    layers: Annotated[int, typer.Option(min=1, max=16)] = 3,
    block: Annotated[int, typer.Option(min=2, max=64, help="Most mask slots of a block.")] = 12,
    batch: Annotated[int, typer.Option(min=2, help="Texts in a step.")] = 8,
    rows: Annotated[int, typer.Option(min=16, help="Mask slots of each text in a step.")] = 480,
    lr: Annotated[float, typer.Option(min=0)] = 1e-2,
    start: Annotated[Path | None, typer.Option(help="A drafter to go on from.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes of Ray Train.")] = 2,
    device: Annotated[
        str, typer.Option(help="Where the target writes its texts: cpu or cuda.")
    ] = "cpu",
    checkpoint_steps: Annotated[int, typer.Option(min=1)] = 50,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was interrupted.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Drop an earlier training in OUT.")
    ] = False,
) -> None:
    """Write the target's texts, train on them, write the drafter's folder.

    Texts in OUT that are there already are used.
    """
    # Imported here, so that --help is there at once.
    from foredraft_align.data.write import WritePlan
    from foredraft_align.kinds import Shape
    from foredraft_align.loop.objectives import Decaying, Deer
    from foredraft_align.loop.train import Progress as Step
    from foredraft_align.loop.train import TrainPlan
    from foredraft_align.run import AlignPlan, align, prepare
    from foredraft_align.workers import RayWorkers

    if not (target / "config.json").is_file():
        raise ConfigError(f"{target} is no model folder", param="target")
    if rows < block:
        raise ConfigError(f"rows is {rows}: less than a block of {block}", param="rows")
    # Workers run in folders of their own.
    target, out = target.resolve(), out.resolve()
    start, prompts = (each and each.resolve() for each in (start, prompts))
    prepare(out, resume=resume, fresh=fresh)
    per_file = min(256, texts)
    shape = Shape(target, layers, block, shortlist, start, seed)
    plan = AlignPlan(shape, out, kind, tuple(exclude or ()))
    write = WritePlan(
        target,
        out / "texts",
        shards=-(-texts // per_file),
        texts=per_file,
        max_question=max_prompt,
        max_tokens=max_tokens,
        prompts=prompts,
        seed=seed,
        device=device,
    )
    sizes = tuple(sorted({max(1, block // 3), max(1, 2 * block // 3), block}))
    train = TrainPlan(
        out,
        write.folder,
        (),
        (),
        seconds=minutes * 60,
        steps=steps,
        lr=lr,
        batch=batch,
        micro_batch=max(1, min(4, batch // workers)),
        rows=rows,
        block_sizes=sizes,
        block_shares=tuple(1 / len(sizes) for _ in sizes),
        objective=Decaying() if objective == "decay" else Deer(alpha),
        seed=seed,
        checkpoint_steps=checkpoint_steps,
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=1.0, start=False)
        held_out = ""

        def report(step: Step) -> None:
            nonlocal held_out
            if step.held_out is not None:
                held_out = f", {step.held_out:.2f} tokens per round held out"
            line = f"step {step.step}: loss {step.loss:.3f}{held_out}"
            bar.start_task(task)
            bar.update(task, completed=step.done, description=line)

        say = bar.console.print
        align(plan, write, train, RayWorkers(workers, device, say), say, report)
