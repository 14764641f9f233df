"""The records that travel between the parts. Frozen, standard library only, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from foredraft.layout import Layout


class Proposal(StrEnum):
    """How a drafter turns its lattice into a block."""

    ARGMAX = "argmax"
    COUPLED = "coupled"
    CPS = "cps"
    TREE = "tree"
    SAMPLED = "sampled"
    AR = "ar"
    LOOKUP = "lookup"


NGRAM: Final = "ngram"
"""Stands for a proposal in a block that was made of the text's n-grams, by no drafter."""


class Acceptance(StrEnum):
    """Which rule decides what is kept of a draft.

    coupled keeps while equal to the target's own draw; rejection is min(1, p/q) with residual
    sampling, block its joint form over the whole draft. l2r is rejection with the drafter's
    marginals as q, whatever picked the tokens (DiffuSpec Eq. 1 and 5): exact at temperature 0 only.
    """

    COUPLED = "coupled"
    REJECTION = "rejection"
    BLOCK = "block"
    L2R = "l2r"


class WarmupProposal(StrEnum):
    """What drafts the first tokens of a text, before diffusion takes over (SpecDiff)."""

    DIFFUSION = "diffusion"
    AR = "ar"
    LOOKUP = "lookup"


class GrammarKind(StrEnum):
    """How the text of a grammar is to be read."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


class FinishReason(StrEnum):
    """Why a session ended, in the words of the OpenAI API."""

    STOP = "stop"
    LENGTH = "length"


class Origin(StrEnum):
    """How a committed token came about."""

    KEPT = "kept"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the target's distribution is processed before a token is drawn.

    temperature 0 is plain argmax; top_k 0 keeps all tokens; seed keys g(seed, position, token).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LogitsParams:
    """What is done to the target's logits before the temperature, at every position.

    In this order: only allowed_token_ids, if any, stay; no stop token before min_tokens are
    generated; logit_bias is added; the penalties. Generated is what follows the first prompt_len
    tokens of the prefix; repetition_penalty looks at the prompt, too.
    """

    prompt_len: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()


class Grammar(NamedTuple):
    """What the generated text must follow."""

    kind: GrammarKind
    text: str


class TokenLogprobs(NamedTuple):
    """How probable the target found a token, from its own logits: temperature 1, nothing done.

    rank counts the tokens that were at least as probable; top are (token, logprob), best first.
    """

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class Stored(NamedTuple):
    """A part of a tensor that is held elsewhere: a carrier's reference to it, and its bytes."""

    reference: bytes
    size: int


Part = bytes | Stored


@dataclass(frozen=True, slots=True)
class Base:
    """The prefix, in tokens, that a draft or a verdict was computed from."""

    session_id: str
    round: int
    prefix_len: int
    prefix_hash: int


class Price(NamedTuple):
    """What a verifier's passes cost at the moment, in seconds, and how many sessions share them.

    pass_s is a pass over one row of each session; row_s what one more row adds where every session
    drafts, draft_s what passes lose to the drafts and messages of one drafted round. All are
    0 where the verifier does not know. drafting is the most sessions that
    drafted in one of the last passes.
    """

    sessions: int = 0
    pass_s: float = 0.0
    row_s: float = 0.0
    draft_s: float = 0.0
    drafting: int = 0


NO_PRICE: Final = Price()


@dataclass(frozen=True, slots=True)
class Timings:
    """Where a round's time went inside a service, in microseconds; rows that shared the last of its
    passes. A drafter does not count its passes.
    """

    queue_us: int = 0
    compute_us: int = 0
    batch_rows: int = 0
    passes: int = 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model behind a service, compared on open so that a mismatch is refused.

    weights_hash distinguishes checkpoints, and how a target computes with them
    (model_files.weights_hash), "" where there is none.
    features_hash names the fused features, features_width values for each token, that a verifier
    can tell or a drafter needs (features.py), "" where there are none.
    eos_token_ids end a text, empty where they are not known; mask_token_id stands for a token that
    is yet to come, where the model has one. any_subset is true where a target reads Layouts.
    block_length is the number of slots that a block-diffusion model denoises together, else 0.
    """

    vocab_size: int
    max_len: int
    tokenizer_hash: str
    numerics: str
    name: str
    weights_hash: str = ""
    features_hash: str = ""
    features_width: int = 0
    eos_token_ids: tuple[int, ...] = ()
    mask_token_id: int | None = None
    any_subset: bool = False
    block_length: int = 0


class Candidates(NamedTuple):
    """What one token was drawn from: ids, and integer weights whose shares are the exact q."""

    tokens: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DraftParams:
    """How a drafter works on a block, whatever its proposal.

    steps is the number of denoising passes (DiffuSpec Eq. 4, SpecDiff's T). extend lengthens a
    block while its tokens are confident. warmup_proposal drafts the first
    warmup_tokens after the prompt.
    """

    steps: int = 1
    extend: bool = False
    warmup_proposal: WarmupProposal = WarmupProposal.DIFFUSION
    warmup_tokens: int = 0


class Guess(NamedTuple):
    """A way in which a round may end: draft token `node` is the last one kept, -1 for none, and
    `token` follows it, with an estimated probability.
    """

    node: int
    token: int
    probability: float


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Tokens proposed for one round.

    parents[i] is the index of token i's parent, -1 for the root's children; empty means a path.
    generated_len is the EOS-aware L_gen of DiffuSpec Eq. 8. guesses are the likeliest outcomes of
    the round, likeliest first. q[i] is what token i was drawn from; empty for a deterministic
    proposal, whose q is one-hot. expected[i] is the estimated probability that token i is accepted;
    empty where there is no estimate.
    """

    base: Base
    tokens: tuple[int, ...]
    parents: tuple[int, ...] = ()
    proposal: Proposal | Literal["ngram"] = Proposal.ARGMAX
    generated_len: int = 0
    guesses: tuple[Guess, ...] = ()
    timings: Timings = Timings()
    q: tuple[Candidates, ...] = ()
    expected: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The target's decision on one round: kept draft tokens, then the target's own tokens.

    path holds the indices of the kept draft tokens, from the root on; empty means the first
    `accepted` ones, as always when the draft is a path. logprobs has an entry for each kept and
    each next token, if the session asked for them; prompt_logprobs, in the first verdict, one for
    each token of the prefix but the first. features are the fused ones (features.py) of the tokens
    committed by now, except the last, that no earlier verdict brought; if the session asked.
    cached_tokens of the text were not read for this verdict, because another session had. Of the
    draft the last left_out tokens were not verified; price is what the deciding pass went by.
    feature_parts, if any, go before features: all of them, where one is stored elsewhere.
    """

    base: Base
    accepted: int
    next_tokens: tuple[int, ...]
    timings: Timings = Timings()
    path: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    features: bytes = b""
    cached_tokens: int = 0
    left_out: int = 0
    price: Price = NO_PRICE
    feature_parts: tuple[Part, ...] = ()

    @property
    def kept(self) -> Sequence[int]:
        """The indices of the kept draft tokens, from the root on."""
        return self.path or range(self.accepted)


@dataclass(frozen=True, slots=True)
class DraftOpen:
    """Opens a session on a drafter: the prefix known so far and how to propose.

    A block brings up to num_guesses guesses. The prefix's first prompt_len tokens are the prompt, 0
    for all of them. With marginals, the q of a path is the model's own distribution at each slot,
    whatever picked the tokens (DiffuSpec Eq. 5), and none of them is picked with shared noise.
    """

    session_id: str
    prefix: tuple[int, ...]
    sampling: SamplingParams
    proposal: Proposal
    max_len: int
    params: DraftParams = DraftParams()
    num_guesses: int = 1
    prompt_len: int = 0
    marginals: bool = False


@dataclass(frozen=True, slots=True)
class Propose:
    """Asks for num_tokens tokens after (the first keep_len tokens last named) + append.

    features are the fused ones (features.py) of this prefix's tokens, except the last, that the
    drafter does not have yet; empty for a drafter that reads none. feature_parts, if any, go before
    features: all of them, where one is stored elsewhere.
    """

    base: Base
    keep_len: int
    append: tuple[int, ...]
    num_tokens: int
    features: bytes = b""
    feature_parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposeAhead:
    """Asks for num_tokens tokens after each of some outcomes of the round that is being verified.

    base names the prefix that is verified, (the first keep_len tokens last named) + append; each
    outcome is what the round may commit behind it, likeliest first. A drafter answers for as many
    of them as it has room for, if for any.
    """

    base: Base
    keep_len: int
    append: tuple[int, ...]
    num_tokens: int
    outcomes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class VerifyOpen:
    """Opens a session on a verifier and reserves KV for prefix + max_new_tokens + max_draft + 1.

    logprobs asks for those of committed tokens, with so many of the likeliest ones beside each;
    prompt_logprobs for those of the prefix's tokens, too. Sessions share KV only with sessions of
    the same cache_salt. features_hash asks for the features of that name, but for those of the
    first features_from tokens; a verifier that has no such features sends none. tensor_store is the
    store that their reader has, "" if they are to come in chunks. groups are whom the session
    counts for: each may hold a part of the KV cache. drafted is true where another verifier has
    decided about drafts of this session. With a layout the prefix is in order space, and in plain
    rounds the target drafts up to self_draft tokens of a pass itself.
    """

    session_id: str
    prefix: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    max_draft: int
    stop_token_ids: tuple[int, ...] = ()
    acceptance: Acceptance = Acceptance.COUPLED
    logits: LogitsParams = LogitsParams()
    logprobs: int | None = None
    grammar: Grammar | None = None
    prompt_logprobs: bool = False
    cache_salt: str = ""
    features_hash: str = ""
    features_from: int = 0
    tensor_store: str = ""
    groups: tuple[str, ...] = ()
    drafted: bool = False
    layout: Layout | None = None
    self_draft: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """One block to verify, or, with an empty draft, plain_steps tokens to decode plainly.

    parents shape the draft as in DraftBlock: a tree, or, if empty, a path. q and expected are as in
    DraftBlock; the rule coupled does not read q. Without expected the draft is verified whole.
    no_features is true where no features are needed from here on.
    """

    base: Base
    draft: tuple[int, ...] = ()
    plain_steps: int = 1
    parents: tuple[int, ...] = ()
    q: tuple[Candidates, ...] = ()
    expected: tuple[float, ...] = ()
    no_features: bool = False


class DraftOpened(NamedTuple):
    """A drafter's answer to open; tensor_store is the store that it reads, "" for none."""

    model: ModelInfo
    max_draft_tokens: int
    tensor_store: str = ""


class Committed(NamedTuple):
    """One committed token and how it came about."""

    token: int
    origin: Origin
    logprobs: TokenLogprobs | None = None
