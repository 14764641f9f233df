"""From a server's answer with `"speculative": {"rounds": true}` to a recorded request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.errors import ConfigError, CorruptModelOutput
from foredraft.strict import parse
from foredraft_simulator.recorded_runs.records import RecordedRequest

_SAME = (
    "k",
    "bought",
    "source",
    "led_by",
    "ahead",
    "began_s",
    "draft_wait_s",
    "verify_s",
    "verifier_queue_s",
    "verifier_s",
    "drafter_s",
)
_PRICE = ("sessions", "pass_s", "row_s", "draft_s")


def recorded_request(
    arrived_s: float,
    prompt_tokens: int,
    temperature: float,
    ttft_s: float,
    seconds: float,
    rounds: Sequence[Mapping[str, Any]],
) -> RecordedRequest:
    """Return a request whose choice had these rounds; raise CorruptModelOutput if it cannot be."""
    try:
        found = [_round(one) for one in rounds]
        return parse(
            RecordedRequest,
            {
                "arrived_s": arrived_s,
                "prompt_tokens": prompt_tokens,
                "output_tokens": sum(one["tokens"] for one in found),
                "temperature": temperature,
                "ttft_s": ttft_s,
                "seconds": seconds,
                "rounds": found,
            },
        )
    except (ConfigError, KeyError, TypeError) as error:
        raise CorruptModelOutput(f"the server's rounds cannot be recorded: {error}") from None


def _round(one: Mapping[str, Any]) -> dict[str, Any]:
    draft, price = one["draft"], one["price"]
    return {
        **{name: one[name] for name in _SAME},
        **{name: price[name] for name in _PRICE},
        "offered": len(draft["tokens"]),
        "kept": draft["kept"],
        "tokens": len(one["tokens"]),
    }
