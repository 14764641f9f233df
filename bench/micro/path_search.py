"""Times the searches between a drafter pass and its block: python -m bench.micro.path_search.

Path search by each part of its causal proxy alone and by the default mixture, and the draft tree,
on scores of the embedded drafter at evenly spaced places of the target's own continuations of
held-out prompts, at temperature 0. A round is what they are added to: one drafter pass and one
verifier forward over the last token and 16 drafted ones.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer

from deployments.config import model_path
from drafter_service.config import CPSConfig, DrafterConfig, ScorerConfig
from drafter_service.load import load_model, load_strategies
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.proposals import Drafted
from drafter_service.strategies import Strategy
from foredraft.decoding.tree import explicit
from foredraft.messages import DraftOpen
from foredraft.types import Proposal, SamplingParams
from foredraft_cli.prompts.held_out import prompts
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment, alloc

T = TypeVar("T")

EMBEDDED = Path(model_path("models/embedded"))
SLOTS = 16
VERIFIED = 17
SPACING = 8
NOTHING = {"edge": 0.0, "context": 0.0, "static": 0.0}


@dataclass
class Side:
    """One way to search, what each search took, in ms of CPU, and how many tokens it got right."""

    name: str
    config: DrafterConfig
    proposal: Proposal
    tokens: int
    times: list[float] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


def sides() -> list[Side]:
    """Return path search by each part of the proxy and by the default one, and the trees."""
    default = DrafterConfig(model=EMBEDDED / "drafter")
    found = []
    for part in NOTHING:
        scorer = ScorerConfig.model_validate(NOTHING | {part: 1.0})
        alone = default.model_copy(update={"cps": CPSConfig(scorer=scorer)})
        found.append(Side(f"cps, {part} alone", alone, Proposal.CPS, SLOTS - 1))
    found.append(Side("cps, default", default, Proposal.CPS, SLOTS - 1))
    for nodes in (VERIFIED - 1, default.tree.max_nodes):
        found.append(Side(f"tree, {nodes} nodes", default, Proposal.TREE, nodes))
    return found


def timed(call: Callable[[], T], times: list[float]) -> T:
    """Return what call returns; add the CPU time that it took in this thread, in ms."""
    begin = time.thread_time()
    result = call()
    times.append(1e3 * (time.thread_time() - begin))
    return result


def search(strategy: Strategy, side: Side, text: Sequence[int], scores: BlockScores) -> Drafted:
    """Return what the strategy makes of a pass's scores; it may ask for fewer slots."""
    passes = strategy.draft(side.tokens, text, SLOTS)
    count = next(passes).num_slots
    assert scores.edge is not None
    some = BlockScores(scores.tokens[:count], scores.log_q[:count], scores.edge[:count])

    def draw() -> Drafted:
        try:
            passes.send(some)
        except StopIteration as end:
            drafted: Drafted = end.value
            return drafted
        raise AssertionError("a second pass")

    return timed(draw, side.times)


def right(drafted: Drafted, truth: Sequence[int]) -> int:
    """Return how many tokens of truth the draft's branches hold."""
    at, kept = -1, 0
    parents = explicit(drafted.parents, len(drafted.tokens))
    for node, (token, parent) in enumerate(zip(drafted.tokens, parents, strict=True)):
        if parent == at and kept < len(truth) and token == truth[kept]:
            at, kept = node, kept + 1
    return kept


def continuation(target: PagedModel, blocks: list[int], prompt: list[int], count: int) -> list[int]:
    """Return the target's own next tokens at temperature 0."""
    text, fed = list(prompt), 0
    while len(text) < len(prompt) + count:
        logits = target.forward([Segment(blocks, fed, text[fed:], 1)])
        fed = len(text)
        text.append(int(logits[0].argmax()))
    return text


def measure(
    compared: Sequence[Side], texts: Sequence[str], count: int
) -> tuple[list[float], list[float]]:
    """Fill in the sides over count tokens behind each text.

    Return the CPU times of the drafter passes and of the verifier forwards between them, in ms.
    """
    drafter = load_model(compared[0].config)
    target = load_target(VerifierConfig(model=EMBEDDED / "target"))
    capabilities = drafter.capabilities
    turns = deque((side, load_strategies(side.config, capabilities).make) for side in compared)
    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer" / "tokenizer.json"))
    passes: list[float] = []
    forwards: list[float] = []
    for prompt in (tokenizer.encode(text).ids for text in texts):
        blocks = alloc(target, len(prompt) + count + VERIFIED)
        text = continuation(target, blocks, prompt, count)
        drafter.draft([BlockRequest(0, 0, text, 0)])
        for at in range(len(prompt), len(text) - SLOTS, SPACING):
            rows = Segment(blocks, at - 1, text[at - 1 : at - 1 + VERIFIED], VERIFIED)
            timed(partial(target.forward, [rows]), forwards)
            context = tuple(text[:at])
            ask = BlockRequest(0, at - 4, text[at - 4 : at], SLOTS)
            turns.rotate()
            for side, strategy_of in turns:
                # A search finds the caches as the pass left them.
                [scores] = timed(partial(drafter.draft, [ask]), passes)
                opened = DraftOpen("bench", context, SamplingParams(), side.proposal, len(text))
                drafted = search(strategy_of(opened), side, context, scores)
                side.accepted.append(right(drafted, text[at:]))
        target.pool.give(blocks)
    return passes, forwards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96, help="of each continuation")
    args = parser.parse_args()
    torch.set_num_threads(1)
    compared = sides()
    passes, forwards = measure(compared, prompts(args.prompts), args.tokens)
    draft, verify = statistics.median(passes), statistics.median(forwards)
    lines = [
        f"{len(forwards)} lattices of {SLOTS} slots; medians of CPU time in one thread",
        f"round: pass {draft:.2f} ms + forward of {VERIFIED} rows {verify:.2f} ms",
        f"{'':22}{'ms':>8}{'of a round':>12}{'accepted':>10}",
    ]
    for side in compared:
        taken, mean = statistics.median(side.times), statistics.mean(side.accepted)
        share = taken / (draft + verify)
        lines.append(f"{side.name:22}{taken:>8.3f}{share:>12.1%}{mean:>10.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
