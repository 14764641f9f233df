"""Which strategy a session gets, by the names of its proposal and parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

from drafter_service.config import DrafterConfig
from drafter_service.models.compiled.noise import best_noise
from drafter_service.models.compiled.searches import NativeBeam, NativeTree
from drafter_service.models.port import Capabilities
from drafter_service.proposals.causal_scorer import CausalScorer, EdgeScorer, Mixture, Uniform
from drafter_service.proposals.context_ngram import ContextNgram
from drafter_service.proposals.denoising import Denoiser
from drafter_service.proposals.draft_tree import TreeParams, TreeSearch, grow
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.marginals import marginals
from drafter_service.proposals.path_search import BeamSearch, PathSearch, SearchParams
from drafter_service.proposals.proposals import (
    Drafted,
    argmax_path,
    coupled_path,
    cps_path,
    tree_block,
)
from drafter_service.proposals.sampled import sampled_path
from drafter_service.strategies import (
    Autoregressive,
    Diffusion,
    Draw,
    Extended,
    ExtendParams,
    Lookup,
    Strategy,
    Warmup,
)
from foredraft.errors import InvalidRequest
from foredraft.messages import DraftOpen
from foredraft.types import Proposal, SamplingParams, WarmupProposal
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
        block = min(extend.block, capabilities.max_mask_slots - 1)
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
        until = (request.prompt_len or len(request.prefix)) + params.warmup_tokens
        match params.warmup_proposal:
            case WarmupProposal.AR:
                return Warmup(self._autoregressive(request), strategy, until)
            case WarmupProposal.LOOKUP:
                return Warmup(self._lookup(), strategy, until)
            case WarmupProposal.DIFFUSION:
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
        if request.marginals and proposal is Proposal.TREE:
            raise InvalidRequest(
                "marginals must be false: a tree's nodes are no slots", param="marginals"
            )
        if self._capabilities.features_hash:
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
            ("params.warmup_proposal", params.warmup_proposal is WarmupProposal.AR),
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
        alone = request.marginals or request.proposal in (Proposal.ARGMAX, Proposal.SAMPLED)
        favours = SamplingParams() if alone else request.sampling
        denoiser, slots = Denoiser(request.params.steps, favours), self._capabilities.max_mask_slots
        if request.marginals and request.proposal is not Proposal.SAMPLED:
            draw = self._draw(request.proposal, favours, request.num_guesses)
            draw = self._with_marginals(draw, request.sampling)
        else:
            draw = self._draw(request.proposal, request.sampling, request.num_guesses)
        if request.params.extend:
            return Extended(denoiser, draw, favours, self._extend)
        if request.proposal is Proposal.TREE:
            most = min(slots, self._tree.depth)
            guess_slots = min(1, request.num_guesses)
            return Diffusion(denoiser, draw, most, self._tree.max_nodes, guess_slots)
        return Diffusion(denoiser, draw, slots)

    def _with_marginals(self, draw: Draw, sampling: SamplingParams) -> Draw:
        """Return a draw of the same paths, with the marginals as q."""
        most = self._config.sampled.candidates

        def draw_with_q(
            scores: BlockScores, count: int, text: Sequence[int], start: int
        ) -> Drafted:
            drafted = draw(scores, count, text, start)
            return replace(drafted, q=marginals(scores, drafted.tokens, sampling, most))

        # At temperature 0 no rule reads q.
        return draw if sampling.temperature == 0 else draw_with_q

    def _draw(self, proposal: Proposal, sampling: SamplingParams, num_guesses: int) -> Draw:
        """Return how a proposal makes a block of a denoised block's scores."""
        eos = self._capabilities.eos
        match proposal:
            case Proposal.ARGMAX:
                return lambda scores, count, text, start: argmax_path(scores, count, eos)
            case Proposal.COUPLED:
                return lambda scores, count, text, start: coupled_path(
                    scores, count, eos, sampling, len(text), num_guesses
                )
            case Proposal.SAMPLED:
                most = self._config.sampled.candidates
                return lambda scores, count, text, start: sampled_path(
                    scores, count, eos, sampling, len(text), start, most
                )
            case Proposal.CPS:
                return lambda scores, count, text, start: cps_path(
                    scores, count, eos, sampling, text, self._path_search, num_guesses
                )
            case Proposal.TREE:
                search, noise = self._tree_search, self._noise
                return lambda scores, count, text, start: tree_block(
                    scores, count, eos, sampling, text, self._tree, search, noise, num_guesses
                )
        raise AssertionError(f"{proposal} is drawn from no denoised block")

    def _autoregressive(self, request: DraftOpen) -> Autoregressive:
        sampled = request.proposal is Proposal.SAMPLED
        proposal = Proposal.SAMPLED if sampled else Proposal.COUPLED
        favours = SamplingParams() if sampled else request.sampling
        c = self._capabilities
        draw = self._draw(proposal, request.sampling, 0)
        return Autoregressive(draw, favours, c.eos, c.max_mask_slots - 1)

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
