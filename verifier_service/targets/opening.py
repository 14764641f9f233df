"""From a request to a session: its rule, its streams, and what drafts for it."""

from __future__ import annotations

from collections.abc import Callable

from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import VerifyOpen
from foredraft.types import ModelInfo
from verifier_service.rules.guesses import Guesses
from verifier_service.rules.logits import GrammarMatcher, LogitsProcessors
from verifier_service.rules.ngrams import TreeGrower
from verifier_service.rules.rules import Rule, rule_of
from verifier_service.rules.sampling import GumbelArgmax
from verifier_service.targets.features import FeatureLog
from verifier_service.targets.followers import Followers
from verifier_service.targets.own_ngrams import NgramsAccepted, OwnNgrams
from verifier_service.targets.self_drafting import Learnt, NoSelfDraft, OwnTree, SelfDraft
from verifier_service.targets.session import Session
from verifier_service.targets.streams import streams_of


class SessionMaker:
    """Makes a target's sessions, which share what is learnt of their own drafts."""

    def __init__(
        self,
        info: ModelInfo,
        plain_round_s: float,
        argmax: GumbelArgmax,
        guesses: Guesses,
        trees: TreeGrower,
        clock: Callable[[], float],
    ) -> None:
        self._info = info
        self._plain_round_s = plain_round_s
        self._argmax, self._guesses, self._trees = argmax, guesses, trees
        self._clock = clock
        self._learnt = Learnt()
        # By temperature, of which there are at most as many as tenths.
        self._ngrams: dict[float, NgramsAccepted] = {}

    def session(
        self,
        request: VerifyOpen,
        commit_limit: int,
        matcher: GrammarMatcher | None,
        reserve: Callable[[int], None],
    ) -> Session:
        """Return the session of a checked request, whose text has at most commit_limit tokens.

        reserve is called with the KV rows of its worst case before the rest is made; raise what it
        raises.
        """
        info, streams = self._info, streams_of(request.layout, self._info)
        rule = rule_of(request.acceptance, request.sampling, self._argmax, request.drafted)
        stops = frozenset(request.stop_token_ids)
        own = self._self_draft(request, rule, stops)
        most = max(request.max_draft, own.most_tokens)
        reserve(streams.most_rows(commit_limit, most, own.most_ahead))
        log = FeatureLog(request.features_from, info.features_width)
        with_features = bool(request.features_hash) and request.features_hash == info.features_hash
        return Session(
            session_id=request.session_id,
            rule=rule,
            stop_token_ids=stops,
            max_draft=request.max_draft,
            commit_limit=commit_limit,
            streams=streams,
            tokens=list(request.prefix),
            prefix_hash=hash_prefix(request.prefix),
            plain_round_s=self._plain_round_s,
            processors=LogitsProcessors(
                request.logits, stops, info.vocab_size, request.prefix, matcher
            ),
            self_draft=own,
            logprobs=request.logprobs,
            prompt_logprobs=[] if request.prompt_logprobs else None,
            features=log if with_features else None,
        )

    def _self_draft(self, request: VerifyOpen, rule: Rule, stops: frozenset[int]) -> SelfDraft:
        """Return what drafts for a session itself.

        A part of a draft, and one made with the target's own noise, are exact by one rule alone.
        """
        own: SelfDraft = NoSelfDraft()
        if rule.divisible and request.ngram is not None:
            tenths = round(request.sampling.temperature, 1)
            accepted = self._ngrams.setdefault(tenths, NgramsAccepted())
            own = OwnNgrams(request.max_draft, request.ngram, stops, self._trees, accepted)
        elif rule.divisible and request.layout is not None and request.self_draft:
            followers = Followers(request.layout)
            most, guesses = request.self_draft, self._guesses
            own = OwnTree(most, followers, self._learnt, rule.trees, guesses, self._clock)
        own.extend(request.prefix)
        return own
