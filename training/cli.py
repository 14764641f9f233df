"""Commands that rebuild the embedded pair, and train targets of other kinds from it.

In order: corpus, tokenizer, target, drafter, proxy, evaluate, seal. For a diffusion target: corpus,
encode, block_dlm, graph; for an any-subset one: corpus, encode, any_subset.

Work files go below build/train, results below models/embedded. Every command can be repeated:
finished parts are kept.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from training.corpus.corpus import Document

app = typer.Typer(
    help="Train the embedded target, drafter and proxy, and a diffusion target.",
    no_args_is_help=True,
)

WORK = Path("build/train")
EMBEDDED = Path("models/embedded")
WorkOption = Annotated[Path, typer.Option(help="Folder of intermediate files.")]
OutOption = Annotated[Path, typer.Option(help="Folder of the finished pair.")]
SeedOption = Annotated[int, typer.Option(help="Seed of every random choice.")]
RanksOption = Annotated[int, typer.Option(help="Processes; 1 uses every core in one process.")]
CompileOption = Annotated[bool, typer.Option("--compile/--no-compile", help="Use torch.compile.")]
PROMPTS = "heldout_prompts.jsonl"


@app.command()
def corpus(work: WorkOption = WORK, seed: SeedOption = 0) -> None:
    """Collect, clean and deduplicate Python source installed on this machine."""
    from training.corpus.corpus import write_corpus

    documents = write_corpus(work / "corpus.jsonl", seed)
    size = sum(len(document.text) for document in documents)
    typer.echo(f"{len(documents)} files, {size / 1e6:.1f} M characters")


@app.command()
def tokenizer(work: WorkOption = WORK, out: OutOption = EMBEDDED, seed: SeedOption = 0) -> None:
    """Train the tokenizer, encode the corpus, write the held-out prompts."""
    from training.corpus.corpus import read_corpus
    from training.corpus.prompts import held_out_prompts, write_prompts
    from training.corpus.tokenizer import save_tokenizer, train_tokenizer

    documents = read_corpus(work / "corpus.jsonl")
    trained = train_tokenizer(document.text for document in documents)
    save_tokenizer(trained, out / "tokenizer")
    _encode(work, documents, trained)
    prompts = held_out_prompts(trained, seed)
    write_prompts(out / PROMPTS, prompts)
    typer.echo(f"{len(prompts)} held-out prompts")


@app.command()
def encode(work: WorkOption = WORK, out: OutOption = EMBEDDED) -> None:
    """Encode the corpus with the pair's tokenizer as it is, to train models beside the pair."""
    from training.corpus.corpus import read_corpus
    from training.corpus.tokenizer import load_tokenizer

    _encode(work, read_corpus(work / "corpus.jsonl"), load_tokenizer(out / "tokenizer"))


@app.command()
def target(
    work: WorkOption = WORK,
    out: OutOption = EMBEDDED,
    seed: SeedOption = 0,
    minutes: Annotated[float, typer.Option(help="Training time; the schedule follows it.")] = 64.0,
    ranks: RanksOption = 2,
    name: Annotated[str, typer.Option(help="Folder below `out`, and of checkpoints.")] = "target",
    hidden: int = 384,
    heads: int = 6,
    intermediate: int = 1024,
    layers: int = 8,
    batch: int = 8,
    micro_batch: int = 4,
    lr: float = 3e-3,
    start: Annotated[
        Path | None, typer.Option(help="An exported target to go on from, grown to `layers`.")
    ] = None,
    compiled: CompileOption = True,
) -> None:
    """Train the target, or a small language model by its name; resumes from its checkpoint."""
    from training.embedded.target import TargetRun, run_rank, train_target
    from training.embedded.target_model import TargetShape

    run = TargetRun(
        data=work,
        output=out / name,
        checkpoint=work / name,
        minutes=minutes,
        lr=lr,
        seed=seed,
        shape=TargetShape(hidden=hidden, layers=layers, heads=heads, intermediate=intermediate),
        batch=batch,
        micro_batch=micro_batch,
        compile=compiled,
        start=start,
    )
    if ranks == 1:
        train_target(run)
    else:
        _spawn(run_rank, ranks, run)


@app.command()
def drafter(
    work: WorkOption = WORK,
    out: OutOption = EMBEDDED,
    seed: SeedOption = 0,
    minutes: Annotated[
        float, typer.Option(help="Distillation time; the schedule follows it.")
    ] = 33.0,
    shards: Annotated[int, typer.Option(help="Batches of continuations to generate first.")] = 60,
    ranks: RanksOption = 2,
    lr: float = 2e-3,
    start: Annotated[
        Path | None, typer.Option(help="A drafter to go on from, with a new schedule.")
    ] = None,
    layers: Annotated[int, typer.Option(help="Layers to have; ones are added to `start`.")] = 2,
    compiled: CompileOption = True,
) -> None:
    """Generate the target's continuations, then distil the drafter on them; both parts resume."""
    from training.embedded.distill import DistillRun, run_distill_rank, train_drafter
    from training.embedded.generate import GenerationPlan, generate_shards

    plan = GenerationPlan(work, out / "target", work / "continuations", shards=shards, seed=seed)
    run = DistillRun(
        shards=plan.output,
        target=out / "target",
        output=out / "drafter",
        checkpoint=work / "drafter",
        minutes=minutes,
        lr=lr,
        seed=seed,
        start=start,
        layers=layers,
        compile=compiled,
    )
    if ranks == 1:
        generate_shards(plan)
        train_drafter(run)
        return
    import torch.multiprocessing as mp

    mp.spawn(_generate_rank, (ranks, plan), nprocs=ranks)
    _spawn(run_distill_rank, ranks, run)


@app.command()
def proxy(
    work: WorkOption = WORK,
    out: OutOption = EMBEDDED,
    corpus_tokens: Annotated[
        int, typer.Option(help="Tokens of the core corpus to add.")
    ] = 1_000_000,
    prune: Annotated[
        str,
        typer.Option(help="n-grams in the ARPA file are seen more often than this, per order."),
    ] = "0,1,1",
) -> None:
    """Train path search's n-gram table, and proxy.arpa for KenLM below the work folder, on the
    continuations and part of the corpus.
    """
    from training.corpus.tokenizer import load_tokenizer
    from training.proxy.arpa import Words, save_arpa
    from training.proxy.kneser_ney import are_limits
    from training.proxy.proxy import proxy_rows, to_table, train_proxy

    limits = [int(limit) if limit.isdecimal() else -1 for limit in prune.split(",")]
    # KenLM reads no model of single words.
    if len(limits) < 2 or not are_limits(limits):
        raise typer.BadParameter(f"expected two or more numbers from 0 on, none falling: {prune}")
    words = Words(load_tokenizer(out / "tokenizer").get_vocab_size())
    rows = proxy_rows(work / "continuations", work, corpus_tokens, words)
    to_table(train_proxy(rows, words)).save(out / "proxy")
    # Below the work folder: the pair is small enough to ship, and this is not.
    save_arpa(train_proxy(rows, words, limits), work / "proxy.arpa")


@app.command()
def evaluate(
    out: OutOption = EMBEDDED,
    work: WorkOption = WORK,
    prompts: Annotated[int, typer.Option(help="Held-out prompts, spread over all modules.")] = 48,
    prompt_tokens: int = 128,
    count: Annotated[int, typer.Option(help="Tokens of every continuation.")] = 96,
    seed: SeedOption = 0,
) -> None:
    """Measure the pair on held-out prompts; prints the figures and writes them below the work
    folder.
    """
    from training.corpus.prompts import read_prompts
    from training.corpus.tokenizer import load_tokenizer
    from training.embedded.evaluate import evaluate_pair, prompt_rows
    from training.embedded.target import held_out_loss, held_out_rows
    from training.embedded.target_model import load_target

    encoder = load_tokenizer(out / "tokenizer")
    everything = read_prompts(out / PROMPTS)
    chosen = everything[:: max(1, len(everything) // prompts)][:prompts]
    rows = prompt_rows([encoder.encode(prompt["text"]).ids for prompt in chosen], prompt_tokens)
    figures = evaluate_pair(out / "target", out / "drafter", rows, count, seed)
    held_out = held_out_rows(work, length=512)
    figures["held_out_nats_per_token"] = held_out_loss(load_target(out / "target"), held_out)
    report = json.dumps(figures, indent=2)
    (work / "evaluation.json").write_text(report + "\n")
    typer.echo(report)


@app.command()
def seal(out: OutOption = EMBEDDED) -> None:
    """Write the manifest with the sha256 of every file of the pair."""
    from training.embedded.card import write_manifest

    write_manifest(out)


@app.command("block_dlm")
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
        seed=seed,
    )
    if ranks == 1:
        train(run)
    else:
        _spawn(run_rank, ranks, run)


@app.command(name="any_subset")
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
    ranks: RanksOption = 2,
    order: Annotated[
        str,
        typer.Option(help="Of masked tokens: lattice, by position (Eq. 4), or any (Fig. 3)."),
    ] = "lattice",
    max_given: Annotated[
        float, typer.Option(help="Greatest share of a text that is given; 0.85 in Fig. 4.")
    ] = 0.10,
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
    if order not in list(Order):
        raise typer.BadParameter(f"--order: expected one of {', '.join(Order)}, not {order}")
    run = AnySubsetRun(
        data=work,
        output=out or work / "any_subset" / "export",
        checkpoint=work / (out.name if out else "any_subset") / "run",
        shape=TargetShape(layers=layers, max_positions=length),
        start=None if from_scratch else start,
        minutes=minutes,
        lr=lr,
        batch=batch,
        length=length,
        micro_batch=micro_batch,
        seed=seed,
        order=Order(order),
        rates=MaskRates(1 - max_given, 0.99),
        warmup=AnySubsetRun.warmup if warmup else 0.0,
    )
    if ranks == 1:
        train_any_subset(run)
    else:
        _spawn(run_any_subset_rank, ranks, run)


@app.command()
def graph(
    model: Annotated[Path, typer.Argument(help="Folder of a block-diffusion model.")],
    work: WorkOption = WORK,
    static: Annotated[
        int | None, typer.Option(help="Slots that a step fills, instead of a threshold.", min=1)
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Probability above which slots are filled.", min=0)
    ] = 0.9,
    temperature: Annotated[float, typer.Option(min=0)] = 0.0,
    greedy_ranks: Annotated[
        bool, typer.Option(help="Rank without noise above temperature 0, as the paper does.")
    ] = False,
    size: Annotated[int, typer.Option(help="Nodes of the graph.", min=1)] = 10,
    lookahead: Annotated[int, typer.Option(help="Steps that a node may be ahead.", min=1)] = 5,
    prompts: Annotated[int, typer.Option(min=1)] = 50,
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 128,
    max_tokens: Annotated[int, typer.Option(min=1)] = 64,
) -> None:
    """Calibrate a block-diffusion model's draft graph, written beside its weights."""
    from denoiser_service.core.graph import RankedBy
    from foredraft.denoising import Dynamic, Static
    from training.block_dlm.graph import GraphRun, calibrate

    run = GraphRun(
        model=model,
        data=work,
        unmasking=Static(static) if static else Dynamic(threshold),
        temperature=temperature,
        ranked_by=RankedBy.GREEDY if greedy_ranks else RankedBy.NOISE,
        size=size,
        lookahead=lookahead,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
    )
    found, file = calibrate(run)
    for node in found.nodes:
        pairs = " ".join(f"({c.position},{c.vocabulary})" for c in sorted(node.formula))
        typer.echo(f"level {node.level}, {node.count} times: {pairs}")
    typer.echo(f"{len(found.nodes)} nodes in {file}")


def _encode(work: Path, documents: list[Document], tokenizer: Tokenizer) -> None:
    """Writes the corpus's streams of tokens, and the held-out one."""
    import numpy as np

    from training.corpus.corpus import held_out_files
    from training.corpus.tokenizer import encode_documents

    streams = {
        "core": [document for document in documents if document.core],
        "rest": [document for document in documents if not document.core],
        "heldout": held_out_files(),
    }
    for name, part in streams.items():
        tokens = encode_documents(tokenizer, part)
        np.save(work / f"{name}.npy", tokens)
        typer.echo(f"{name}: {tokens.size} tokens")


def _generate_rank(rank: int, world: int, plan: Any) -> None:
    """Entry point of one generating process."""
    from training.embedded.generate import generate_shards

    generate_shards(plan, rank, world)


def _spawn(entry: Callable[..., None], ranks: int, run: object) -> None:
    """Runs `entry(rank, ranks, run, store)` in one process per rank."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(entry, (ranks, run, f"{folder}/store"), nprocs=ranks)


if __name__ == "__main__":
    app()
