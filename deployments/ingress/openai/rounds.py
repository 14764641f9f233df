"""The rounds of an answer as JSON values: what was drafted and kept, when, and at what price.

Streamed beside the text where a request asks for `speculative.rounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.stream.sse import RoundText
from foredraft.decoding.block_state import MASKED
from foredraft.decoding.tree import explicit
from orchestrator.report import RoundStats
from orchestrator.request import BlockEvent


class Rounds:
    """Writes rounds; the tokens of drafts are named by tokenizer, one by one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, rounds: Sequence[RoundText]) -> list[dict[str, Any]]:
        """Return the rounds' values."""
        return [self._of(each) for each in rounds]

    def block(self, event: BlockEvent) -> dict[str, Any]:
        """Return the value of a diffusion target's block."""
        tokens = [None if token == MASKED else token for token in event.state]
        texts = [None if token is None else self._name(token) for token in tokens]
        return {"first": event.first, "token_ids": tokens, "texts": texts}

    def _of(self, one: RoundText) -> dict[str, Any]:
        event, pieces = one
        drafted, stats = event.drafted, event.stats
        return {
            "round": stats.round,
            "tokens": [
                {"id": committed.token, "text": text, "origin": str(committed.origin)}
                for committed, text in zip(event.tokens, pieces, strict=False)
            ],
            "draft": {
                "tokens": list(drafted.tokens),
                "texts": [self._name(token) for token in drafted.tokens],
                "parents": list(explicit(drafted.parents, len(drafted.tokens))),
                "kept": list(drafted.kept),
            },
            "bought": stats.num_bought,
            "source": _source(stats),
            "k": stats.decision.k,
            "reason": stats.decision.reason,
            "led_by": "verifier" if stats.verifier_led else "orchestrator",
            "ahead": "hit" if stats.hit else "miss" if stats.ran_ahead else "no",
            "price": stats.price._asdict(),
            "began_s": stats.began_s,
            "draft_wait_s": stats.draft_wait_s,
            "verify_s": stats.verify_s,
            "verifier_queue_s": stats.verify_timings.queue_us / 1e6,
            "verifier_s": stats.verify_timings.compute_us / 1e6,
            "drafter_s": drafted.timings.compute_us / 1e6,
        }

    def _name(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _source(stats: RoundStats) -> str:
    """Return where a round's draft came from."""
    if not stats.num_draft_tokens:
        return "none"
    return "ngram" if stats.ngram else "drafter"
