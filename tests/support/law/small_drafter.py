"""A small drafter, related to the target of `exactness` and wrong, and all its ways to propose."""

from collections import defaultdict
from functools import cache
from unittest.mock import patch

import numpy as np

from drafter_service.proposals import proposals
from drafter_service.proposals.causal_scorer import EdgeScorer, Mixture
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.draft_tree import TreeParams
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.marginals import marginals
from drafter_service.proposals.path_search import BeamSearch, SearchParams
from drafter_service.proposals.proposals import (
    argmax_path,
    copied_path,
    coupled_path,
    cps_path,
    process,
    tree_block,
)
from drafter_service.proposals.sampled import quantise
from foredraft.ngram.lookup import continuation
from foredraft.noise.streams import DRAFT
from foredraft.types import Candidates, SamplingParams
from tests.support.law.exactness import (
    DRAFT_LENGTH,
    DRAWS,
    FIRST,
    LENGTH,
    LOGITS,
    PROMPT,
    VOCAB,
    Group,
    own_draws,
    uniforms,
)

EOS = 0
CANDIDATES = 5
MOST = 4
FINE = 1 << 16
PROXY = Mixture([(0.5, EdgeScorer()), (0.5, ContextNgram(VOCAB, order=3))])
SEARCH = BeamSearch(PROXY, SearchParams(tau=0.9, max_candidates=4, weight=0.4, beam=3))
TREE = TreeParams(depth=DRAFT_LENGTH, max_nodes=5, text_depth=DRAFT_LENGTH)


@cache
def block_scores(prefix=()):
    """The drafter after a prefix: marginals and edges, both with errors."""
    rng = np.random.default_rng([11, *prefix])
    size = (LENGTH - len(prefix), VOCAB)
    log_q = np.log(rng.dirichlet(np.full(VOCAB, 2.0), size[0]))
    log_q[0] = 0.6 * LOGITS[prefix] + rng.normal(0, 0.6, VOCAB)
    log_q -= np.log(np.exp(log_q).sum(1, keepdims=True))
    tokens = np.argsort(-log_q, axis=1)[:, :CANDIDATES]
    for row in tokens:
        if EOS not in row:
            row[-1] = EOS
    edge = rng.normal(0, 0.8, (size[0], CANDIDATES, CANDIDATES))
    return BlockScores(tokens, np.take_along_axis(log_q, tokens, 1), edge)


def coarsely(logits, total=16):
    """Integer weights of all columns, [CANDIDATES] each, that sum to a small total."""
    share = np.exp(logits - logits.max())
    weights = np.maximum(np.floor(share / share.sum() * total), 1).astype(int)
    weights[weights.argmax()] += total - weights.sum()
    return np.arange(len(logits)), weights


def finely(logits):
    """The service's own rounding."""
    return quantise(logits, MOST)


def sampled(setting, *, weigh=finely, tell=None, noise=None):
    """What `sampled_path` does for one seed, for all.

    The bugs to plant: tell(logits) are columns and weights that are sent though others are drawn
    from; noise is Gumbel noise to draw with, [DRAWS, LENGTH, VOCAB].
    """

    def drafts(prefix, seeds):
        scores, at = block_scores(prefix), len(prefix)
        groups = [(Group(seeds, ()), 0)]
        for slot in range(min(DRAFT_LENGTH, LENGTH - 1 - at)):
            longer = []
            for group, before in groups:
                if group.tokens and group.tokens[-1] == EOS:
                    longer.append((group, before))
                    continue
                logits = scores.log_q[slot] + scores.edge[slot, before]
                columns, weights = weigh(process(logits, setting.params()))
                ids = scores.tokens[slot]
                if noise is None:
                    u = uniforms(DRAFT, at)[group.seeds, at + slot] * weights.sum()
                    places = np.searchsorted(weights.cumsum(), u.astype(int), side="right")
                else:
                    own = noise[group.seeds[:, None], at + slot, ids[columns]]
                    places = (np.log(weights) + own).argmax(1)
                sent = _candidates(ids, *(tell(logits) if tell else (columns, weights)))
                for place in np.unique(places):
                    column = int(columns[place])
                    tokens, q = (*group.tokens, int(ids[column])), (*group.q, sent)
                    longer.append((Group(group.seeds[places == place], tokens, q), column))
            groups = longer
        return [group for group, _ in groups]

    return drafts


def _candidates(ids, columns, weights):
    return Candidates(tuple(ids[columns].tolist()), tuple(weights.tolist()))


@cache
def first_drafts(proposal, temperature, draws=DRAWS):
    """What the drafter's own functions propose after PROMPT with the shared noise, in groups."""
    found = defaultdict(list)
    scores = block_scores()
    # How likely a path's tokens are kept is worked out once they are chosen, and takes as long.
    with patch.object(proposals, "estimated", lambda drafted, *_: drafted):
        for seed in range(draws):
            sampling = SamplingParams(temperature, seed=seed)
            if proposal == "coupled":
                drafted = coupled_path(scores, DRAFT_LENGTH, EOS, sampling, FIRST)
            elif proposal == "cps":
                drafted = cps_path(scores, DRAFT_LENGTH, EOS, sampling, PROMPT, SEARCH)
            else:
                drafted = tree_block(scores, TREE.max_nodes, EOS, sampling, PROMPT, TREE)
            found[drafted.tokens, drafted.parents].append(seed)
    return [
        Group(np.array(seeds), tokens, (), parents) for (tokens, parents), seeds in found.items()
    ]


def with_shared_noise(proposal, setting, draws=DRAWS):
    """One draft made with the shared noise; what it leaves open is decoded plainly."""
    temperature = setting.temperature
    return lambda prefix, seeds: [] if prefix else first_drafts(proposal, temperature, draws)


def argmax(prefix, seeds):
    """A draft in every round but the last, in which nothing is left to draft."""
    length = min(DRAFT_LENGTH, LENGTH - 1 - len(prefix))
    return [Group(seeds, argmax_path(block_scores(prefix), length, EOS).tokens)] if length else []


def copied(prefix, seeds):
    """As argmax, where the text occurred before."""
    length = min(DRAFT_LENGTH, LENGTH - 1 - len(prefix))
    found = continuation((*PROMPT, 1, 3, 5, *PROMPT, *prefix), length, 2) if length else ()
    return [Group(seeds, copied_path(found, length, EOS).tokens)] if found else []


def searched(setting, with_marginals=True):
    """What the drafter drafts under `l2r`: a searched path in each round, with its marginals as q.

    Without them q is one-hot: the path could be no other.
    """

    @cache
    def drafted(prefix):
        scores, length = block_scores(prefix), min(DRAFT_LENGTH, LENGTH - 1 - len(prefix))
        text = (*PROMPT, *prefix)
        tokens = cps_path(scores, length, EOS, SamplingParams(), text, SEARCH).tokens
        q = marginals(scores, tokens, setting.params(), MOST) if with_marginals else ()
        return tokens, q

    return lambda prefix, seeds: (
        [Group(seeds, *drafted(prefix))] if len(prefix) < LENGTH - 1 else []
    )


def constant(prefix, seeds):
    """The same token over and over."""
    return [Group(seeds, (3,) * (LENGTH - 1 - len(prefix)))] if len(prefix) < LENGTH - 1 else []


def always_wrong(setting):
    """Never the token that the target draws with the shared noise."""

    def drafts(prefix, seeds):
        own = own_draws(setting, prefix, seeds, len(prefix))
        return _by_token(seeds, (own + 1) % VOCAB) if len(prefix) < LENGTH - 1 else []

    return drafts


def peeking(setting):
    """One draft, of the token that the target will want after it: it tells of later noise."""
    return lambda prefix, seeds: (
        [] if prefix else _by_token(seeds, own_draws(setting, prefix, seeds, 1))
    )


def _by_token(seeds, tokens):
    return [Group(seeds[tokens == token], (int(token),)) for token in np.unique(tokens)]
