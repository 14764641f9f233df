"""The values that travel between the parts, alone or in messages. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


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
    """What a verifier's passes cost at the moment, in seconds; 0 where that is not known."""

    # Sessions that share a pass.
    sessions: int = 0
    # A pass over one row of each session.
    pass_s: float = 0.0
    # What one more row adds where every session drafts.
    row_s: float = 0.0
    # What passes lose to the drafts and messages of one drafted round.
    draft_s: float = 0.0
    # The most sessions that drafted in one of the last passes.
    drafting: int = 0

    @property
    def least_chance(self) -> float:
        """The chance below which no draft token pays: a row's seconds against a token's in a pass
        without drafts.
        """
        return self.row_s * self.sessions / self.pass_s if self.pass_s else 0.0


NO_PRICE: Final = Price()


@dataclass(frozen=True, slots=True)
class Timings:
    """Where a round's time went inside a service, in microseconds; rows that shared the last of its
    passes. A drafter does not count its passes.

    Of the wait and of the passes, a part is what passes took longer for reading prompts.
    """

    queue_us: int = 0
    compute_us: int = 0
    batch_rows: int = 0
    passes: int = 0
    queue_prefill_us: int = 0
    compute_prefill_us: int = 0

    @property
    def prefill_us(self) -> int:
        """What prompts took of the round's time."""
        return self.queue_prefill_us + self.compute_prefill_us


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model behind a service, compared on open so that a mismatch is refused."""

    vocab_size: int
    max_len: int
    tokenizer_hash: str
    numerics: str
    name: str
    # Of a checkpoint and of how a target computes with it (model_files.weights_hash), "" for none.
    weights_hash: str = ""
    # Names the fused features that a verifier sends or a drafter needs (features.py), "" for none;
    # features_width is the number of their values for each token.
    features_hash: str = ""
    features_width: int = 0
    # End a text; empty where they are not known.
    eos_token_ids: tuple[int, ...] = ()
    # Stands for a token that is yet to come, where the model has one.
    mask_token_id: int | None = None
    # A target that reads Layouts.
    any_subset: bool = False
    # Slots that a block-diffusion model denoises together, else 0.
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


class Committed(NamedTuple):
    """One committed token and how it came about."""

    token: int
    origin: Origin
    logprobs: TokenLogprobs | None = None
