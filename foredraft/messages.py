"""The records that travel on the streams of drafters and verifiers. Frozen, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from foredraft.layout import Layout
from foredraft.ngram.params import NgramParams
from foredraft.types import (
    NO_PRICE,
    Acceptance,
    Base,
    Candidates,
    DraftParams,
    Grammar,
    Guess,
    LogitsParams,
    ModelInfo,
    Part,
    Price,
    Proposal,
    SamplingParams,
    Timings,
    TokenLogprobs,
)


@dataclass(frozen=True, slots=True)
class DraftOpen:
    """Opens a session on a drafter: the prefix known so far and how to propose."""

    session_id: str
    prefix: tuple[int, ...]
    sampling: SamplingParams
    proposal: Proposal
    max_len: int
    params: DraftParams = DraftParams()
    # The most guesses of a block.
    num_guesses: int = 1
    # The prompt's share of the prefix, 0 for all of it.
    prompt_len: int = 0
    # The q of a path is the model's own distribution at each slot, whatever picked the tokens
    # (DiffuSpec Eq. 5), and none of them is picked with shared noise.
    marginals: bool = False


class DraftOpened(NamedTuple):
    """A drafter's answer to open; tensor_store is the store that it reads, "" for none."""

    model: ModelInfo
    max_draft_tokens: int
    tensor_store: str = ""


@dataclass(frozen=True, slots=True)
class Propose:
    """Asks for num_tokens tokens after (the first keep_len tokens last named) + append."""

    base: Base
    keep_len: int
    append: tuple[int, ...]
    num_tokens: int
    # The fused ones (features.py) of this prefix's tokens, except the last, that the drafter does
    # not have yet; empty for a drafter that reads none. feature_parts, if any, go before features:
    # all of them, where one is stored elsewhere.
    features: bytes = b""
    feature_parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposeAhead:
    """Asks for num_tokens tokens after each of some outcomes of the round under verification.

    base names the prefix of that round, (the first keep_len tokens last named) + append. A drafter
    answers for as many outcomes as it has room for, if for any.
    """

    base: Base
    keep_len: int
    append: tuple[int, ...]
    num_tokens: int
    # What the round may commit after that prefix, likeliest first.
    outcomes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Tokens proposed for one round: a path, or a tree where there are parents."""

    base: Base
    tokens: tuple[int, ...]
    # The index of each token's parent, -1 for the root's children.
    parents: tuple[int, ...] = ()
    proposal: Proposal | Literal["ngram"] = Proposal.ARGMAX
    # The EOS-aware L_gen of DiffuSpec Eq. 8.
    generated_len: int = 0
    # The likeliest outcomes of the round, likeliest first.
    guesses: tuple[Guess, ...] = ()
    timings: Timings = Timings()
    # What each token was drawn from; empty for a deterministic proposal, whose q is one-hot.
    q: tuple[Candidates, ...] = ()
    # The estimated probability that each token is accepted; empty where there is no estimate.
    expected: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyOpen:
    """Opens a session on a verifier and reserves KV for prefix + max_new_tokens + max_draft + 1.

    With a layout the prefix is in order space.
    """

    session_id: str
    prefix: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    max_draft: int
    stop_token_ids: tuple[int, ...] = ()
    acceptance: Acceptance = Acceptance.COUPLED
    logits: LogitsParams = LogitsParams()
    # How many of the likeliest tokens come with each committed token's logprob; None for neither.
    logprobs: int | None = None
    grammar: Grammar | None = None
    # Asks for the logprobs of the prefix's tokens, too.
    prompt_logprobs: bool = False
    # Sessions share KV only with sessions of the same one.
    cache_salt: str = ""
    # Asks for the features of that name, but for those of the first features_from tokens; a
    # verifier without such features sends none.
    features_hash: str = ""
    features_from: int = 0
    # The store of the features' reader, "" if they are to come in chunks.
    tensor_store: str = ""
    # Whom the session counts for: each may hold a part of the KV cache.
    groups: tuple[str, ...] = ()
    # Another verifier has decided about drafts of this session.
    drafted: bool = False
    layout: Layout | None = None
    # The most tokens of a pass that an any-subset target drafts itself, in plain rounds.
    self_draft: int = 0
    # How a target that reads left to right drafts of the text's n-grams in plain rounds.
    ngram: NgramParams | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One block to verify, or, with an empty draft, plain_steps tokens to decode plainly.

    Fewer where plain_passes have passed, if that is not 0: a pass commits several tokens where the
    target drafts for itself.

    parents, q and expected are as in DraftBlock. The rule coupled does not read q; without expected
    the draft is verified whole.
    """

    base: Base
    draft: tuple[int, ...] = ()
    plain_steps: int = 1
    parents: tuple[int, ...] = ()
    q: tuple[Candidates, ...] = ()
    expected: tuple[float, ...] = ()
    # No features are needed from here on.
    no_features: bool = False
    plain_passes: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The target's decision on one round: kept draft tokens, then the target's own tokens."""

    base: Base
    accepted: int
    next_tokens: tuple[int, ...]
    timings: Timings = Timings()
    # Indices of the kept draft tokens, from the root on; empty for the first `accepted` ones, as
    # always when the draft is a path.
    path: tuple[int, ...] = ()
    # For each kept and each next token, if the session asked for them.
    logprobs: tuple[TokenLogprobs, ...] = ()
    # In the first verdict, for each token of the prefix but the first, if the session asked.
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    # The fused ones (features.py) of the tokens committed by now, except the last, that no earlier
    # verdict brought; if the session asked. feature_parts, if any, go before features: all of
    # them, where one is stored elsewhere.
    features: bytes = b""
    # Tokens of the text that were not read for this verdict, because another session had.
    cached_tokens: int = 0
    # The draft's last tokens that were not verified.
    left_out: int = 0
    # What the deciding pass went by.
    price: Price = NO_PRICE
    # The tokens that the pass would have committed without the draft, as far as these show: at most
    # one more. 0: not known.
    plain_tokens: int = 0
    feature_parts: tuple[Part, ...] = ()

    @property
    def kept(self) -> Sequence[int]:
        """The indices of the kept draft tokens, from the root on."""
        return self.path or range(self.accepted)
