"""Which strategy a session gets, by the names of its proposal and parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from drafter_service.config import DrafterConfig
from drafter_service.core.causal_scorer import CausalScorer, EdgeScorer, Mixture, Uniform
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.denoising import Denoiser, OnePass, Refined
from drafter_service.core.draft_tree import TreeParams, TreeSearch, grow
from drafter_service.core.path_search import BeamSearch, PathSearch, SearchParams
from drafter_service.draws import CPS, Argmax, Coupled, DraftTree, Draw, Sampled
from drafter_service.model.native_noise import best_noise
from drafter_service.model.native_searches import NativeBeam, NativeTree
from drafter_service.model.port import Capabilities
from drafter_service.strategies import (
    Autoregressive,
    Diffusion,
    Extended,
    ExtendParams,
    Lookup,
    Opening,
    Strategy,
)
from foredraft.errors import InvalidRequest
from foredraft.types import DraftOpen, FirstTokens, Proposal, SamplingParams
from foredraft_kernels.structs import MAX_WIDTH

_NO_DENOISING = (Proposal.AR, Proposal.LOOKUP)


class Strategies:
    """Makes a session's strategy; what all sessions share is made once.

    loaded are the weighted parts of path search's proxy that come from files; kernels are the
    compiled searches, where they were built.
    """

    def __init__(
        self,
        config: DrafterConfig,
        capabilities: Capabilities,
        loaded: Sequence[tuple[float, CausalScorer]] = (),
        kernels: ctypes.CDLL | None = None,
    ) -> None:
        self._config, self._capabilities = config, capabilities
        cps, extend = config.cps, config.extend
        params = SearchParams(cps.tau, cps.max_candidates, cps.weight, cps.beam)
        self._path_search = self._beam_search(params, loaded, kernels)
        self._tree = TreeParams(**config.tree.model_dump())
        self._noise = best_noise(kernels)
        self._tree_search: TreeSearch = grow if kernels is None else NativeTree(kernels)
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
        if proposal is Proposal.HYBRID:
            raise InvalidRequest(
                "hybrid is put together by who asks: ask for tree", param="proposal"
            )
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
        if self._capabilities.features_hash and not self._capabilities.features_optional:
            self._check_behind_text(request)
        if params.extend and proposal in (*_NO_DENOISING, Proposal.TREE):
            raise InvalidRequest(
                f"params.extend must be false: {proposal} drafts no path of diffusion blocks",
                param="params.extend",
            )

    def _check_behind_text(self, request: DraftOpen) -> None:
        """Raise InvalidRequest for a strategy whose passes read tokens that were drafted before."""
        params = request.params
        for param, asked in (
            ("proposal", request.proposal is Proposal.AR),
            ("params.first", params.first is FirstTokens.AR),
            ("params.extend", params.extend),
        ):
            if asked:
                raise InvalidRequest(
                    f"{param} drafts behind drafted tokens: of those, this drafter's model would"
                    " need the target's features",
                    param=param,
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
                return CPS(eos, sampling, self._path_search)
            case Proposal.TREE:
                return DraftTree(eos, sampling, self._tree, self._tree_search, self._noise)
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

    def _beam_search(
        self,
        params: SearchParams,
        loaded: Sequence[tuple[float, CausalScorer]],
        kernels: ctypes.CDLL | None,
    ) -> PathSearch:
        """Return path search by the configured mixture, compiled if that has no loaded part."""
        config = self._config.cps.scorer
        ngram = ContextNgram(
            self._capabilities.vocab_size, config.context_order, config.context_window
        )
        parts: list[tuple[float, CausalScorer]] = [
            (config.edge, EdgeScorer()),
            (config.context, ngram),
            *loaded,
        ]
        used = [(weight, part) for weight, part in parts if weight > 0]
        if not used:
            return BeamSearch(Uniform(), params)
        if kernels is None or loaded or self._config.candidates > MAX_WIDTH:
            return BeamSearch(Mixture(used), params)
        return NativeBeam(kernels, params, config.edge, config.context, ngram)
