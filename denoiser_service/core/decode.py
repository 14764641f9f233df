"""A text from a denoiser: one state a call (vanilla), or several (Spiffy), through the same states.

A prompt's last, unfinished block is the first to be denoised, with the prompt's tokens in its first
slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from denoiser_service.core.draws import Logits
from denoiser_service.core.graph import DraftGraph
from denoiser_service.core.next import Rule
from denoiser_service.core.port import Denoiser, Drafting, Guess
from denoiser_service.core.prune import log_scores, prune
from denoiser_service.core.ranks import Anchor, Ranks
from denoiser_service.core.text import Block, Decoded, Text
from denoiser_service.core.walk import Walk, walk, worth_evaluating
from foredraft.decoding.block_state import State, is_full, opened

Advance = Callable[[Sequence[int], State, Logits | None], Walk]
"""(prefix, state, logits of the state before, if the block had one) -> the walk of one call"""


def vanilla(denoiser: Denoiser, text: Text, rule: Rule) -> Decoded:
    """Return a text made with one state in a call: a call for each step."""

    def advance(prefix: Sequence[int], state: State, _: Logits | None) -> Walk:
        known = {state: denoiser.evaluate(prefix, [state])[0]}
        return walk(state, known, rule, len(prefix))

    return _decode(denoiser.block_length, text, advance)


def speculative(denoiser: Denoiser, text: Text, rule: Rule, drafting: Drafting) -> Decoded:
    """Return the text and the states of `vanilla`, whatever is drafted, in at most as many calls.

    A block's first call has no drafts: none of its states was evaluated before.
    """

    def advance(prefix: Sequence[int], state: State, before: Logits | None) -> Walk:
        start = len(prefix)
        drafts = () if before is None else drafting(Anchor.of(state, before, start))
        guesses = worth_evaluating(state, drafts, denoiser.vocab)
        states = [state, *(guess.state for guess in guesses)]
        known = dict(zip(states, denoiser.evaluate(prefix, states), strict=True))
        return walk(state, known, rule, start)

    return _decode(denoiser.block_length, text, advance)


def _decode(block_length: int, text: Text, advance: Advance) -> Decoded:
    tokens, blocks = text.prompt, []
    while not text.is_done(tokens):
        start = len(tokens) - len(tokens) % block_length
        prefix, state = tokens[:start], opened(tokens[start:], block_length)
        block = _denoise(prefix, state, advance)
        blocks.append(block)
        tokens = prefix + block.states[-1]
    return Decoded(text.new(tokens), tuple(blocks))


def _denoise(prefix: Sequence[int], state: State, advance: Advance) -> Block:
    first = state
    walks: list[Walk] = []
    while not is_full(state):
        walks.append(advance(prefix, state, walks[-1].logits[-1] if walks else None))
        state = walks[-1].states[-1]
    return Block(len(prefix), first, tuple(walks))


@dataclass(frozen=True, slots=True)
class GraphDrafting:
    """Drafts of a calibrated graph, at most `budget` (D*) of them in a call."""

    graph: DraftGraph
    rule: Rule
    budget: int

    def __call__(self, anchor: Anchor) -> Sequence[Guess]:
        """Return states to evaluate together with the anchor's, the best first."""
        graph = self.graph
        ranks = Ranks(anchor, self.rule, graph.ranked_by, graph.deepest)
        drafts = [ranks.draft(node.formula) for node in graph.nodes]
        scores, rule = log_scores(graph, drafts), self.rule
        return prune(graph, drafts, scores, rule.unmasking, self.budget, anchor.full, anchor.least)
