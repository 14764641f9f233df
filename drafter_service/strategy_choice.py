"""Which strategy a session gets, by the names of its proposal and parameters."""

from __future__ import annotations

from drafter_service.config import DrafterConfig
from drafter_service.core.causal_scorer import CausalScorer, EdgeScorer, Mixture, Uniform
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.denoising import Denoiser, OnePass, Refined
from drafter_service.core.draft_tree import TreeParams
from drafter_service.core.path_search import SearchParams
from drafter_service.core.static_ngram import StaticNgram
from drafter_service.draws import CPS, Argmax, Coupled, DraftTree, Draw, Sampled
from drafter_service.model.port import Capabilities
from drafter_service.strategies import (
    Autoregressive,
    Diffusion,
    Extended,
    ExtendParams,
    Hybrid,
    Lookup,
    Opening,
    Strategy,
)
from foredraft.errors import InvalidRequest
from foredraft.types import DraftOpen, FirstTokens, Proposal, SamplingParams

_NO_DENOISING = (Proposal.AR, Proposal.LOOKUP)
_TREES = (Proposal.TREE, Proposal.HYBRID)


class Strategies:
    """Makes a session's strategy; what all sessions share is made once.

    static and kenlm are the scorers of those names, where there are such.
    """

    def __init__(
        self,
        config: DrafterConfig,
        capabilities: Capabilities,
        static: StaticNgram | None = None,
        kenlm: CausalScorer | None = None,
    ) -> None:
        self._config, self._capabilities = config, capabilities
        self._static, self._kenlm = static, kenlm
        cps, extend = config.cps, config.extend
        self._search = SearchParams(cps.tau, cps.max_candidates, cps.weight, cps.beam)
        self._tree = TreeParams(**config.tree.model_dump())
        block = min(extend.block, capabilities.max_block - 1)
        self._extend = ExtendParams(block, extend.confidence, extend.max_tokens)

    def make(self, request: DraftOpen) -> Strategy:
        """Return the strategy that the request asks for; raise InvalidRequest naming a param."""
        self._check(request)
        proposal, params = request.proposal, request.params
        if proposal is Proposal.AR:
            strategy: Strategy = self._autoregressive(request)
        elif proposal is Proposal.LOOKUP:
            strategy = self._lookup()
        else:
            strategy = self._diffusion(request)
        if proposal is Proposal.HYBRID:
            strategy = self._hybrid(request.sampling, strategy)
        until = len(request.prefix) + params.first_tokens
        match params.first:
            case FirstTokens.AR:
                return Opening(self._autoregressive(request), strategy, until)
            case FirstTokens.LOOKUP:
                return Opening(self._lookup(), strategy, until)
            case FirstTokens.DIFFUSION:
                return strategy

    def _check(self, request: DraftOpen) -> None:
        proposal, params = request.proposal, request.params
        if params.steps > 1 and proposal in _NO_DENOISING:
            raise InvalidRequest(
                f"params.steps must be 1: {proposal} denoises nothing", param="params.steps"
            )
        if params.steps > 1 and not self._capabilities.partial_blocks:
            raise InvalidRequest(
                "params.steps must be 1: this drafter's model, as it runs here, cannot condition"
                " on partly filled blocks",
                param="params.steps",
            )
        if params.extend and proposal in (*_NO_DENOISING, *_TREES):
            raise InvalidRequest(
                f"params.extend must be false: {proposal} drafts no path of diffusion blocks",
                param="params.extend",
            )

    def _diffusion(self, request: DraftOpen) -> Strategy:
        # What the target's noise must not decide is decided without it, at any temperature.
        alone = request.proposal in (Proposal.ARGMAX, Proposal.SAMPLED)
        favours = SamplingParams() if alone else request.sampling
        steps = request.params.steps
        denoiser: Denoiser = Refined(steps, favours) if steps > 1 else OnePass()
        draw = self._draw(request)
        if request.params.extend:
            return Extended(denoiser, draw, favours, self._extend)
        return Diffusion(denoiser, draw, self._capabilities.max_block)

    def _draw(self, request: DraftOpen) -> Draw:
        eos, sampling = self._capabilities.eos, request.sampling
        match request.proposal:
            case Proposal.ARGMAX:
                return Argmax(eos, sampling)
            case Proposal.SAMPLED:
                return self._sampled(eos, sampling)
            case Proposal.CPS:
                scorer = self._config.cps.scorer
                ngram = ContextNgram(
                    self._capabilities.vocab_size, scorer.context_order, scorer.context_window
                )
                return CPS(eos, sampling, self._search, self._scorer(ngram), ngram)
            case Proposal.TREE | Proposal.HYBRID:
                return DraftTree(eos, sampling, self._tree)
            case Proposal.COUPLED:
                return Coupled(eos, sampling)
        raise AssertionError(f"{request.proposal} is drawn from no denoised block")

    def _autoregressive(self, request: DraftOpen) -> Autoregressive:
        c = self._capabilities
        draw = self._sampled if request.proposal is Proposal.SAMPLED else Coupled
        return Autoregressive(draw(c.eos, request.sampling), c.eos, c.max_block - 1)

    def _sampled(self, eos: int, sampling: SamplingParams) -> Sampled:
        return Sampled(eos, sampling, self._config.sampled.candidates)

    def _lookup(self) -> Lookup:
        lookup = self._config.lookup
        return Lookup(self._capabilities.eos, lookup.shortest, lookup.max_tokens)

    def _hybrid(self, sampling: SamplingParams, model: Strategy) -> Hybrid:
        hybrid = self._config.hybrid
        shortest = hybrid.shortest_sampled if sampling.temperature > 0 else hybrid.shortest
        return Hybrid(Lookup(self._capabilities.eos, shortest, model.most_tokens), model)

    def _scorer(self, ngram: ContextNgram) -> CausalScorer:
        config = self._config.cps.scorer
        parts: list[tuple[float, CausalScorer | None]] = [
            (config.edge, EdgeScorer()),
            (config.context, ngram),
            (config.static, self._static),
            (config.kenlm, self._kenlm),
        ]
        used = [(weight, part) for weight, part in parts if part is not None and weight > 0]
        return Mixture(used) if used else Uniform()
