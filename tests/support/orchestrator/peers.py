"""A scripted target, and drafters and verifiers over it that misbehave on command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from foredraft.decoding.outcomes import outcomes_of
from foredraft.decoding.prefix import hash_prefix
from foredraft.decoding.tree import ROOT, explicit
from foredraft.errors import PrefixMismatch, Unavailable
from foredraft.limits import MAX_DRAFT
from foredraft.messages import (
    DraftBlock,
    DraftOpen,
    DraftOpened,
    Propose,
    ProposeAhead,
    Round,
    Verdict,
    VerifyOpen,
)
from foredraft.types import (
    NO_PRICE,
    Guess,
    ModelInfo,
    SamplingParams,
    Timings,
    TokenLogprobs,
)
from orchestrator.config import BreakerConfig, OrchestratorConfig, RetryConfig
from orchestrator.request import GenerationRequest, StepEvent, Summary

VOCAB = 50
MODEL = ModelInfo(VOCAB, 4096, "tokenizer", "exact", "scripted")
PROMPT = (3, 1, 4, 1, 5)


def next_token(prefix: Sequence[int]) -> int:
    """The target: any fixed function of the whole prefix."""
    return hash_prefix(prefix) % VOCAB


def continuation(prefix: Sequence[int], n: int) -> tuple[int, ...]:
    """The target's next n tokens."""
    tokens = list(prefix)
    for _ in range(n):
        tokens.append(next_token(tokens))
    return tuple(tokens[len(prefix) :])


def plain(prompt: Sequence[int], max_new_tokens: int, stops: Sequence[int] = ()) -> tuple[int, ...]:
    """Plain decoding: what every request must return."""
    tokens = continuation(prompt, max_new_tokens)
    for i, token in enumerate(tokens):
        if token in stops:
            return tokens[: i + 1]
    return tokens


def request(max_new_tokens: int = 60, **fields: object) -> GenerationRequest:
    return replace(
        GenerationRequest("s", PROMPT, SamplingParams(), max_new_tokens),
        **fields,
    )


def config(**fields: object) -> OrchestratorConfig:
    """Patient about answers, quick about coming back."""
    defaults = OrchestratorConfig(
        draft_deadline_ms=5000,
        admission_wait_s=0.02,
        breaker=BreakerConfig(cooldown_s=0.002, max_cooldown_s=0.01),
        verifier_retry=RetryConfig(attempts=5, wait_s=0.02, initial_s=0.001, max_s=0.002),
    )
    return defaults.model_copy(update=fields)


def true_block(ask: Propose, prefix: Sequence[int]) -> DraftBlock:
    """What a perfect drafter answers."""
    *tokens, bonus = continuation(prefix, ask.num_tokens + 1)
    guesses = (Guess(len(tokens) - 1, bonus, 1.0),)
    return DraftBlock(ask.base, tuple(tokens), generated_len=ask.num_tokens, guesses=guesses)


def cut(block: DraftBlock, length: int) -> DraftBlock:
    """The block without its tokens from `length` on, and without guesses about them."""
    guesses = tuple(guess for guess in block.guesses if guess.node < length)
    return replace(block, tokens=block.tokens[:length], guesses=guesses)


def wrong_at(block: DraftBlock, index: int) -> DraftBlock:
    """The block with another token at index; at its length, another bonus guess."""
    if index >= len(block.tokens):
        guesses = (g._replace(token=(g.token + 1) % VOCAB) for g in block.guesses)
        return replace(block, guesses=tuple(guesses))
    tokens = list(block.tokens)
    tokens[index] = (tokens[index] + 1) % VOCAB
    return replace(block, tokens=tuple(tokens))


def bushy(block: DraftBlock, nodes: int, wrong_first: bool) -> DraftBlock:
    """A tree of up to nodes: the block's path, each token with a wrong sibling that has a child."""
    tokens: list[int] = []
    parents: list[int] = []
    at = ROOT
    for token in block.tokens:
        wrong = (token + 1) % VOCAB
        family = [(wrong, at), (token, at)] if wrong_first else [(token, at), (wrong, at)]
        first = len(tokens)
        tokens += [family[0][0], family[1][0], token]
        parents += [at, at, first if wrong_first else first + 1]
        at = first + wrong_first
    tree = replace(block, tokens=tuple(tokens), parents=tuple(parents), guesses=())
    return replace(cut(tree, nodes), parents=tuple(parents[:nodes]))


DraftScript = Callable[[int, Propose, Sequence[int]], Awaitable[DraftBlock]]


async def perfect(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
    """Answers the target's own tokens; index counts the proposals of all streams."""
    return true_block(ask, prefix)


class ScriptedDrafter:
    """A DrafterPort. `opening`, if set, is called before each open and may raise or wait."""

    def __init__(self, script: DraftScript = perfect, opened: DraftOpened | None = None) -> None:
        self.script = script
        self.opened = opened or DraftOpened(MODEL, 16)
        self.opening: Callable[[int], Awaitable[None]] | None = None
        self.asked: list[Propose] = []
        self.opens: list[DraftOpen] = []
        self.live: set[_DraftStream] = set()

    async def open(self, request: DraftOpen) -> _DraftStream:
        self.opens.append(request)
        if self.opening is not None:
            await self.opening(len(self.opens))
        stream = _DraftStream(self, request)
        self.live.add(stream)
        return stream


class _DraftStream:
    def __init__(self, port: ScriptedDrafter, request: DraftOpen) -> None:
        self._port = port
        self._named = list(request.prefix)
        self.opened = port.opened
        self.draining = False

    async def propose(self, request: Propose) -> DraftBlock:
        assert request.keep_len <= len(self._named)
        self._named = [*self._named[: request.keep_len], *request.append]
        if hash_prefix(self._named) != request.base.prefix_hash:
            raise PrefixMismatch("the tokens named do not hash to the base")
        prefix = tuple(self._named)
        self._port.asked.append(request)
        return await self._port.script(len(self._port.asked) - 1, request, prefix)

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """The script answers for each outcome as if it had been asked in time."""
        named = [*self._named[: request.keep_len], *request.append]
        if hash_prefix(named) != request.base.prefix_hash:
            raise PrefixMismatch("the tokens named do not hash to the base")
        self._named = named
        answers = []
        for outcome in outcomes_of(request):
            alone = Propose(outcome.base, len(named), outcome.tokens, request.num_tokens)
            self._port.asked.append(alone)
            prefix = (*named, *outcome.tokens)
            answers.append(self._port.script(len(self._port.asked) - 1, alone, prefix))
        return tuple([await answer for answer in answers])

    async def close(self) -> None:
        self._port.live.discard(self)


VerifyScript = Callable[[int], Awaitable[None]]


class ScriptedVerifier:
    """A VerifierPort over the target.

    `before` and `after`, if set, run around each verification, with its index over all streams, and
    may wait or raise; what `after` spoils was decided all the same.
    """

    def __init__(self) -> None:
        self.before: VerifyScript | None = None
        self.after: VerifyScript | None = None
        self.opening: VerifyScript | None = None
        self.model = MODEL
        self.price = NO_PRICE
        # Of each draft no more tokens are verified.
        self.most_bought = MAX_DRAFT
        # So many tokens of a plain round take one pass.
        self.tokens_a_pass = 1
        # What passes of plain rounds are said to take for the prompts of others.
        self.prefill_us = 0
        # So many tokens of a prompt count as read for others.
        self.cached_tokens = 0
        self.rounds: list[Round] = []
        self.opens: list[VerifyOpen] = []
        self.live: list[_VerifyStream] = []

    async def open(self, request: VerifyOpen) -> _VerifyStream:
        self.opens.append(request)
        if self.opening is not None:
            await self.opening(len(self.opens))
        stream = _VerifyStream(self, request)
        self.live.append(stream)
        return stream


class _VerifyStream:
    def __init__(self, port: ScriptedVerifier, request: VerifyOpen) -> None:
        self._port = port
        self._open = request
        self._tokens = list(request.prefix)
        self._answered = False
        self.model = port.model
        self.draining = False

    async def verify(self, request: Round) -> Verdict:
        if self not in self._port.live:
            raise Unavailable("closed")
        self._port.rounds.append(request)
        index = len(self._port.rounds) - 1
        if self._port.before is not None:
            await self._port.before(index)
        assert len(request.draft) <= self._open.max_draft
        verdict = self._decide(request)
        if self._port.after is not None:
            await self._port.after(index)
        await asyncio.sleep(0)
        return verdict

    def _decide(self, request: Round) -> Verdict:
        most, stops = self._port.most_bought, self._open.stop_token_ids
        left_out = max(0, len(request.draft) - most)
        if request.draft and not most:
            request = replace(request, draft=(), parents=(), plain_passes=1)
        elif left_out:
            request = replace(request, draft=request.draft[:most], parents=request.parents[:most])
        verdict = decide(self._tokens, request, stops, self._port.tokens_a_pass)
        if not request.draft:
            prefill_us = self._port.prefill_us
            timings = replace(verdict.timings, compute_us=prefill_us, compute_prefill_us=prefill_us)
            verdict = replace(verdict, timings=timings)
        first = not self._answered
        self._answered = True
        due = 0 if self._open.logprobs is None else verdict.accepted + len(verdict.next_tokens)
        scored = len(self._open.prefix) - 1 if self._open.prompt_logprobs and first else 0
        return replace(
            verdict,
            left_out=left_out,
            price=self._port.price,
            cached_tokens=self._port.cached_tokens if request.base.round == 0 else 0,
            logprobs=(TokenLogprobs(-1.0, 1),) * due,
            prompt_logprobs=(TokenLogprobs(-1.0, 1),) * scored,
        )

    async def close(self) -> None:
        if self in self._port.live:
            self._port.live.remove(self)


def decide(
    tokens: list[int], asked: Round, stops: Sequence[int] = (), tokens_a_pass: int = 1
) -> Verdict:
    """Keep while equal, on a verifier whose prefix is `tokens`; they become the next prefix."""
    if hash_prefix(tokens) != asked.base.prefix_hash:
        raise PrefixMismatch("base is another prefix")
    if not asked.draft:
        passes = asked.plain_passes or asked.plain_steps
        emitted = plain(tokens, min(asked.plain_steps, passes * tokens_a_pass), stops)
        tokens.extend(emitted)
        passes = -(-len(emitted) // tokens_a_pass)
        return Verdict(asked.base, 0, emitted, Timings(passes=passes))
    parents, path, at = explicit(asked.parents, len(asked.draft)), [], ROOT
    for node, token in enumerate(asked.draft):
        if parents[node] == at and token == next_token(tokens):
            tokens.append(token)
            path.append(node)
            at = node
    more = plain(tokens, 1, stops)
    tokens.extend(more)
    kept = () if path == list(range(len(path))) else tuple(path)
    return Verdict(asked.base, len(path), more, path=kept)


class Collected:
    """Everything a generation yielded."""

    def __init__(self) -> None:
        self.steps: list[StepEvent] = []
        self.summary: Summary | None = None

    def add(self, event: StepEvent | Summary) -> None:
        if isinstance(event, Summary):
            self.summary = event
        else:
            self.steps.append(event)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(c.token for step in self.steps for c in step.tokens)
