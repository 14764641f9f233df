"""A small target, the rounds of 100,000 sessions with it, and the law that they must follow.

Rules, processing and noise are the services' own. What is done here for all seeds at once is what
a session does for one: seeds whose drafts are equal are judged together, with odds that do not
depend on the seed.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import chisquare

from foredraft.decoding.tree import branch
from foredraft.noise.gumbel import gumbel_torch
from foredraft.noise.streams import ACCEPT, RESIDUAL, stream_key, substream, uniform
from foredraft.types import Acceptance, Candidates, SamplingParams
from verifier_service.rules import sampling as target_sampling
from verifier_service.rules.acceptance import keep_while_equal
from verifier_service.rules.rejection import next_weights, one_hot
from verifier_service.rules.rules import METHODS
from verifier_service.rules.sampling import RowSampling

VOCAB = 6
LENGTH = 3
"""Generated tokens whose joint law is looked at."""
DRAFT_LENGTH = 2
DRAWS = 100_000
PROMPT = (2, 4)
FIRST = len(PROMPT)
ALPHA = 1e-4

_rng = np.random.default_rng(7)
LOGITS = {
    prefix: _rng.normal(0, 1.2, VOCAB).astype(np.float32)
    for length in range(LENGTH)
    for prefix in np.ndindex(*([VOCAB] * length))
}
"""The target: logits for every prefix of generated tokens."""


class Setting(NamedTuple):
    """How the target is sampled."""

    temperature: float
    top_p: float

    def params(self, seed=0):
        return SamplingParams(self.temperature, top_p=self.top_p, seed=seed)


class Group(NamedTuple):
    """One draft, and the seeds [n] that drafted it."""

    seeds: np.ndarray
    tokens: tuple[int, ...]
    q: tuple[Candidates, ...] = ()
    parents: tuple[int, ...] = ()


# Groups of the seeds, given their text so far.
Drafts = Callable[[tuple[int, ...], np.ndarray], Iterable[Group]]


@cache
def target(setting, prefix):
    """The target after a prefix, as the verifier sees it: (processed logits, p), [VOCAB] each."""
    z = target_sampling.process(LOGITS[prefix][None], [RowSampling(setting.params(), 0)])
    return z[0], target_sampling.probabilities(z)[0]


@cache
def gumbels(purpose, at):
    """Noise of all seeds for a prefix `at` tokens long and what follows: [DRAWS, LENGTH, VOCAB].

    Without a purpose, the noise that drafter and verifier share.
    """
    keys = torch.tensor(
        [
            [stream_key(stream, FIRST + i) for i in range(LENGTH)]
            for seed in range(DRAWS)
            for stream in [substream(seed, purpose, FIRST + at) if purpose else seed]
        ]
    )
    return gumbel_torch(keys[:, :, None], torch.arange(VOCAB)).numpy()


def shared():
    return gumbels(None, 0)


def own_draws(setting, prefix, seeds, position):
    """What the target would draw after a prefix with the shared noise of a position: [n]."""
    return (target(setting, prefix)[0] + shared()[seeds, position]).argmax(1)


@cache
def uniforms(purpose, at):
    """Uniform numbers of all seeds after `at` tokens of text: [DRAWS, LENGTH]."""
    streams = [substream(seed, purpose, FIRST + at) for seed in range(DRAWS)]
    return np.array([[uniform(s, FIRST + i) for i in range(LENGTH)] for s in streams])


class Independent:
    """The random numbers of the rules that share none, after `at` tokens of text."""

    def uniforms(self, group, at):
        """Those that judge each token of a draft: [n, k]."""
        return uniforms(ACCEPT, at)[group.seeds, at : at + len(group.tokens)]

    def residual(self, seeds, at, position):
        """The noise of the token drawn at the end of a drafted round: [n, VOCAB]."""
        return gumbels(RESIDUAL, at)[seeds, position]

    def plain(self, seeds, at):
        """The noise of a plain round that follows a draft: [n, VOCAB]."""
        return gumbels(RESIDUAL, at)[seeds, at]


def play(drafts: Drafts, acceptance, setting, noise=None, draws=DRAWS):
    """Return the texts of seeds, [draws, LENGTH], and the mean number of kept tokens."""
    texts, lengths = np.full((draws, LENGTH), -1), np.zeros(draws, dtype=np.int64)
    kept = 0
    noise = noise or Independent()
    for at in range(LENGTH):
        here = np.flatnonzero(lengths == at)
        for prefix, which in _alike(texts[here, :at]):
            seeds = here[which]
            for group in drafts(prefix, seeds) or [Group(seeds, ())]:
                for those, new in _judged(group, prefix, acceptance, setting, noise):
                    texts[those, at : at + new.shape[1]] = new
                    lengths[those] += new.shape[1]
                    kept += len(those) * (new.shape[1] - 1)
    return texts, kept / draws


def _judged(group, prefix, acceptance, setting, noise):
    """The tokens that a round adds for each seed of a group: pairs of seeds, tokens [n, new]."""
    at, coupled = len(prefix), acceptance is Acceptance.COUPLED
    seeds, tokens, q, parents = group
    if coupled or not tokens:
        parents = parents or range(-1, len(tokens) - 1)
        chosen = np.empty((len(seeds), 1 + len(tokens)), dtype=np.int64)
        for row, node in enumerate(range(-1, len(tokens))):
            path = tuple(tokens[i] for i in branch(parents, node))
            position = at + len(path)
            plain = shared()[seeds, position] if coupled else noise.plain(seeds, at)
            chosen[:, row] = (target(setting, (*prefix, *path))[0] + plain).argmax(1)
        for row, which in _alike(chosen):
            path, token = keep_while_equal(tokens, row, parents)
            yield seeds[which], _repeated((*(tokens[i] for i in path), token), len(which))
        return
    method, q = METHODS[acceptance], q or one_hot(tokens)
    p = np.stack([target(setting, (*prefix, *tokens[:i]))[1] for i in range(len(tokens) + 1)])
    odds = method.odds(p, tokens, q)
    counts = method.kept(noise.uniforms(group, at) <= odds.keep)
    for kept in np.unique(counts):
        those = seeds[counts == kept]
        with np.errstate(divide="ignore"):
            log_weights = np.log(next_weights(p, q, odds, int(kept)))
        token = (log_weights + noise.residual(those, at, at + kept)).argmax(1)
        yield those, np.column_stack((_repeated(tokens[:kept], len(those)), token))


def _alike(rows):
    """Each distinct row, as a tuple, and where it stands."""
    found, which = np.unique(rows, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return [(tuple(row.tolist()), np.flatnonzero(which == i)) for i, row in enumerate(found)]


def _repeated(tokens, count):
    return np.tile(np.array(tokens, dtype=np.int64), (count, 1))


def oracle(setting, prefix):
    """The target's law after a prefix, from the definition alone: [VOCAB]."""
    p = np.exp(LOGITS[prefix].astype(np.float64) / setting.temperature)
    p /= p.sum()
    order = sorted(range(VOCAB), key=lambda v: -p[v])
    before = 0.0
    for v in order:
        before, p[v] = before + p[v], p[v] if before < setting.top_p else 0.0
    return p / p.sum()


@cache
def exact_law(setting):
    """The probability of every text: [VOCAB ** LENGTH]."""
    return np.array(
        [
            np.prod([oracle(setting, text[:i])[text[i]] for i in range(LENGTH)])
            for text in np.ndindex(*([VOCAB] * LENGTH))
        ]
    )


def p_value(texts, setting):
    """Chi-square of the texts against the target's law; 0 if one of them is impossible."""
    exact = exact_law(setting)
    counts = np.bincount(np.ravel_multi_index(texts.T, (VOCAB,) * LENGTH), minlength=len(exact))
    if counts[exact == 0].any():
        return 0.0
    # Rare texts share a cell: chi-square wants an expected count of 5 or more.
    order = np.argsort(-exact)
    rare = np.cumsum(exact[order]) > 1 - 20 / len(texts)
    expected = np.append(exact[order][~rare], exact[order][rare].sum())
    observed = np.append(counts[order][~rare], counts[order][rare].sum())
    return float(chisquare(observed, expected * len(texts) / expected.sum()).pvalue)
