"""The proposal strategies: from one diffusion pass to the tokens of a block. Pure functions.

None of them can change the output: the verifier keeps a drafted token only while it equals its own,
which is exact for every proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from drafter_service.proposals.draft_tree import Tree, TreeParams, TreeScores, TreeSearch, grow
from drafter_service.proposals.lattice import (
    NEVER,
    BlockScores,
    Floats,
    Ints,
    generated_len,
)
from drafter_service.proposals.path_search import PathSearch
from foredraft.noise.gumbel import Noise, gumbel
from foredraft.types import Candidates, Guess, SamplingParams

NO_GUESS = -1
# The least probability of an outcome that is worth a draft.
_LEAST_GUESS = 0.002


@dataclass(frozen=True, slots=True)
class Drafted:
    """A block's tokens, DiffuSpec's L_gen (Eq. 8), and the guess of the token after the block.

    A path's tokens end at the first EOS, inclusive, and then bonus_guess is NO_GUESS; so it is
    where the pass had no slot for it, and for a tree. parents are empty for a path. q[i] is what
    token i was drawn from; empty if one-hot. expected[i] is the estimated probability that the
    target's own text runs through token i, guesses are the likeliest ways in which it leaves the
    block, best first; both are empty if unknown.
    """

    tokens: tuple[int, ...]
    generated_len: int
    bonus_guess: int
    parents: tuple[int, ...] = ()
    q: tuple[Candidates, ...] = ()
    expected: tuple[float, ...] = ()
    guesses: tuple[Guess, ...] = ()


def argmax_path(scores: BlockScores, num_tokens: int, eos: int) -> Drafted:
    """Return each slot's best candidate by itself; scores has up to num_tokens + 1 slots."""
    return split_path(scores.tokens[:, 0].tolist(), scores, num_tokens, eos)


def coupled_path(
    scores: BlockScores,
    num_tokens: int,
    eos: int,
    sampling: SamplingParams,
    position: int,
    num_guesses: int = 0,
) -> Drafted:
    """Return the path that the drafter draws with the target's noise, token by token.

    Slot j takes argmax of processed (log q + edge after the token just chosen) / T + g(seed,
    position + j, v) over its candidates; at temperature 0 there is no noise. With q near p it
    agrees with the target's own draw with probability at least (1 - TV) / (1 + TV).
    """
    path, _ = walk(scores, sampling, position, eos)
    drafted = split_path(path, scores, num_tokens, eos)
    return estimated(drafted, scores, sampling, position, num_guesses)


def walk(
    scores: BlockScores, sampling: SamplingParams, position: int, eos: int | None = None
) -> tuple[list[int], list[int]]:
    """Return coupled_path's tokens and their columns, up to the first eos, if that is given."""
    noise = shared_noise(scores, sampling, position)
    path: list[int] = []
    columns: list[int] = []
    chosen = 0
    for slot, row in enumerate(scores.tokens):
        logits = scores.log_q[slot]
        if scores.edge is not None:
            logits = logits + scores.edge[slot, chosen]
        chosen = int(np.argmax(process(logits, sampling) + noise[slot]))
        columns.append(chosen)
        path.append(int(row[chosen]))
        if path[-1] == eos:
            break
    return path, columns


def cps_path(
    scores: BlockScores,
    num_tokens: int,
    eos: int,
    sampling: SamplingParams,
    context: Sequence[int],
    search: PathSearch,
    num_guesses: int = 0,
) -> Drafted:
    """Return the best path that search finds through the block (DiffuSpec Sec. 4.2).

    context is the whole prefix.
    Above temperature 0 the scores carry the target's noise, so the path is a deterministic function
    of prefix and seed that is likelier to agree with the target's draws.
    """
    noise = shared_noise(scores, sampling, len(context))
    if _filters(sampling):
        allowed = np.stack([process(row, sampling) for row in scores.log_q]) > NEVER
        noise = np.where(allowed, noise, NEVER)
    path = search(scores, noise, context, sampling.temperature, eos)
    drafted = split_path(path, scores, num_tokens, eos)
    return estimated(drafted, scores, sampling, len(context), num_guesses)


def tree_block(
    scores: BlockScores,
    num_tokens: int,
    eos: int,
    sampling: SamplingParams,
    text: Sequence[int],
    params: TreeParams,
    search: TreeSearch = grow,
    noise_of: Noise = gumbel,
    num_guesses: int = 0,
) -> Drafted:
    """Return a draft tree of up to num_tokens nodes behind text; scores has a slot for each depth.

    Its guesses are the nodes that would come next: each is the target's own token behind a node,
    and not in the tree.

    Above temperature 0 the scores hold the target's noise, so the tree has the tokens that the
    target's own draws will likeliest pick.
    """
    logits = scores.log_q[:, None, :]
    if scores.edge is not None:
        logits = logits + scores.edge
    logits = process_rows(logits, sampling)
    noise = shared_noise(scores, sampling, len(text), noise_of)
    noisy = sampling.temperature > 0
    exponent = params.confidence_exponent_sampled if noisy else params.confidence_exponent
    seed = sampling.seed if noisy else None
    known = TreeScores(scores.tokens, logits, noise, exponent, text, seed)
    if not num_guesses:
        tree, count = search(known, num_tokens, params, eos), num_tokens
    else:
        # Nodes behind nodes that are left out are no outcomes: some of the surplus is lost to them.
        surplus = replace(params, min_node_prob=min(params.min_node_prob, _LEAST_GUESS))
        tree = search(known, num_tokens + 2 * num_guesses, surplus, eos)
        # The likeliest come first.
        count = sum(mass >= params.min_node_prob for mass in tree.mass[:num_tokens])
    length = generated_len(scores, min(num_tokens, len(scores.tokens)), eos)
    expected = tuple(min(mass, 1.0) for mass in tree.mass)
    return Drafted(
        tree.tokens[:count],
        length,
        NO_GUESS,
        tree.parents[:count],
        expected=expected[:count],
        guesses=_next_nodes(tree, count)[:num_guesses],
    )


def _next_nodes(tree: Tree, num_nodes: int) -> tuple[Guess, ...]:
    """Return what a tree's nodes from num_nodes on say of the ways to leave the first ones."""
    beyond = zip(tree.parents, tree.tokens, tree.mass, strict=True)
    return tuple(
        Guess(parent, token, min(mass, 1.0))
        for parent, token, mass in islice(beyond, num_nodes, None)
        if parent < num_nodes
    )


def copied_path(found: Sequence[int], num_tokens: int, eos: int) -> Drafted:
    """Return found tokens, if any, as a block; the one behind num_tokens is the guess."""
    tokens = tuple(found[:num_tokens])
    if eos in tokens:
        tokens = tokens[: tokens.index(eos) + 1]
        return Drafted(tokens, len(tokens) - 1, NO_GUESS)
    guess = found[num_tokens] if len(found) > num_tokens else NO_GUESS
    return Drafted(tokens, len(tokens), guess)


def shared_noise(
    scores: BlockScores, sampling: SamplingParams, position: int, noise_of: Noise = gumbel
) -> Floats:
    """Return g(seed, position + slot, token) for every candidate, [k, M]; zero at temperature 0."""
    if sampling.temperature == 0:
        return np.zeros(scores.tokens.shape)
    positions = np.arange(position, position + len(scores.tokens), dtype=np.int64)
    return noise_of(sampling.seed, positions, scores.tokens)


def estimated(
    drafted: Drafted,
    scores: BlockScores,
    sampling: SamplingParams,
    position: int,
    num_guesses: int,
) -> Drafted:
    """Return a path with the products of its tokens' probabilities (odds_along) as expected.

    Its guesses are other tokens in the place of one of the path's, and those behind all of it.
    """
    length = len(drafted.tokens)
    columns = (scores.tokens[:length] == np.array(drafted.tokens)[:, None]).argmax(1)
    odds = odds_along(scores, columns, sampling, position)
    along = np.cumsum(odds[np.arange(length), columns])
    drafted = replace(drafted, expected=tuple(np.minimum(np.exp(along), 1.0).tolist()))
    if not num_guesses:
        return drafted
    mass = np.exp(odds + np.concatenate(([0.0], along))[: len(odds), None])
    mass[np.arange(length), columns] = 0.0
    if drafted.bonus_guess == NO_GUESS:
        # Nothing follows the path.
        mass[length:] = 0.0
    best = np.argsort(-mass, axis=None, kind="stable")[:num_guesses]
    guesses = (
        Guess(slot - 1, int(scores.tokens[slot, column]), min(1.0, float(mass[slot, column])))
        for slot, column in (divmod(int(place), mass.shape[1]) for place in best)
    )
    return replace(drafted, guesses=tuple(guess for guess in guesses if guess.probability > 0))


def log_odds(scores: BlockScores, columns: Ints, sampling: SamplingParams, position: int) -> Floats:
    """Return log P(slot j, at position + j, takes candidate columns[j] after the one before), [d].

    columns [d] are a path over the first d slots, P is that of odds_along.
    """
    odds = odds_along(scores, columns, sampling, position)
    return np.asarray(odds[np.arange(len(columns)), columns])


def odds_along(
    scores: BlockScores, columns: Ints, sampling: SamplingParams, position: int
) -> Floats:
    """Return log P of each candidate in the slots of a path and in the one behind it, if there is
    one, [d + 1, M] or [d, M]; slot j is at position + j.

    columns [d] are the path over the first d slots. P is the softmax over a slot's candidates of
    log q + edge, above temperature 0 with the target's T, filters and noise: what its own draw will
    likeliest be.
    """
    slots = np.arange(min(len(columns) + 1, len(scores.tokens)))
    logits = scores.log_q[slots]
    if scores.edge is not None:
        # Slot 0's rows are all alike.
        logits = logits + scores.edge[slots, np.append(0, columns)[: len(slots)]]
    odds = process_rows(logits, sampling) + shared_noise(scores, sampling, position)[slots]
    odds = odds - odds.max(1, keepdims=True)
    return np.asarray(odds - np.log(np.exp(odds).sum(1, keepdims=True)))


def process(logits: Floats, sampling: SamplingParams) -> Floats:
    """Return logits [M] / T with NEVER where top-k, top-p or min-p drops the candidate.

    The filters see the candidates' mass only, where the target sees the vocabulary's: a difference
    that can cost agreement and nothing else. At temperature 0 logits are returned as they are.
    """
    if sampling.temperature == 0:
        return logits
    scaled = logits / sampling.temperature
    if not _filters(sampling):
        return scaled
    order = np.argsort(-scaled, kind="stable")
    mass = np.exp(scaled[order] - scaled[order[0]])
    keep = mass >= sampling.min_p
    if 0 < sampling.top_k < len(mass):
        keep[sampling.top_k :] = False
    kept = np.where(keep, mass, 0.0)
    keep &= np.cumsum(kept) - kept < sampling.top_p * kept.sum()
    keep[0] = True
    scaled[order[~keep]] = NEVER
    return scaled


def process_rows(logits: Floats, sampling: SamplingParams) -> Floats:
    """Return `process` of each row of logits [..., M]."""
    if not _filters(sampling):
        return process(logits, sampling)
    rows = [process(row, sampling) for row in logits.reshape(-1, logits.shape[-1])]
    return np.stack(rows).reshape(logits.shape)


def _filters(sampling: SamplingParams) -> bool:
    """Return whether the target drops tokens before it draws."""
    drops = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
    return drops and sampling.temperature > 0


def split_path(path: Sequence[int], scores: BlockScores, num_tokens: int, eos: int) -> Drafted:
    """Cut a path over up to num_tokens + 1 slots into a block and the guess of what follows."""
    tokens = tuple(path[:num_tokens])
    if eos in tokens:
        tokens = tokens[: tokens.index(eos) + 1]
    ended = len(path) <= num_tokens or tokens[-1] == eos
    guess = NO_GUESS if ended else path[num_tokens]
    return Drafted(tokens, generated_len(scores, num_tokens, eos), guess)
