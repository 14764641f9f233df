"""The public traces' formats, recognised by their first line.

Azure 2023 and 2024 (Patel et al., "Splitwise", ISCA 2024; Stojkovic et al., "DynamoLLM", HPCA
2025), Mooncake (Qin et al., FAST 2025), BurstGPT (Wang et al., KDD 2025).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.traces.lines import Line


class Format(NamedTuple):
    """A format: its name, the fields that it is known by, and how a line is read.

    A request of 0 tokens of output is one that failed.
    """

    name: str
    fields: tuple[str, ...]
    read: Callable[[Line, Any], Arrival]
    # Whether the first line names the fields of the others.
    header: bool = True
    # Whether several requests share a stamp because stamps are in coarse steps.
    coarse: bool = False


def _azure(line: Line, values: dict[str, str]) -> Arrival:
    stamp = values["TIMESTAMP"]
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        raise line.fault("TIMESTAMP", f"{stamp!r:.40} is no time") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return Arrival(
        time.timestamp(),
        line.tokens(values, "ContextTokens"),
        line.tokens(values, "GeneratedTokens"),
    )


def _mooncake(line: Line, values: dict[str, Any]) -> Arrival:
    return Arrival(
        line.seconds(values, "timestamp", 1e-3),
        line.tokens(values, "input_length"),
        line.tokens(values, "output_length"),
    )


def _burstgpt(line: Line, values: dict[str, str]) -> Arrival:
    return Arrival(
        line.seconds(values, "Timestamp"),
        line.tokens(values, "Request tokens"),
        line.tokens(values, "Response tokens"),
    )


AZURE = Format("Azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure)
BURSTGPT = Format("BurstGPT", ("Timestamp", "Request tokens", "Response tokens"), _burstgpt)
MOONCAKE = Format(
    "Mooncake",
    ("timestamp", "input_length", "output_length"),
    _mooncake,
    header=False,
    coarse=True,
)
FORMATS = (AZURE, BURSTGPT, MOONCAKE)


def recognised(first: Line) -> tuple[Format, list[str]]:
    """Return the format and the names in its first line; raise ConfigError for any other."""
    is_json = first.text.startswith("{")
    names = [*_object(first)] if is_json else first.cells()
    if len(set(names)) == len(names):
        for each in FORMATS:
            if each.header != is_json and set(each.fields) <= set(names):
                return each, names
    known = "; ".join(f"{each.name}: {', '.join(each.fields)}" for each in FORMATS)
    raise first.fault("header", f"of no format that is read ({known})")


def records(first: Line, rest: Iterator[Line]) -> tuple[Format, Iterator[tuple[Line, Arrival]]]:
    """Return the format and the requests with their lines; raise ConfigError at the first fault."""
    found, names = recognised(first)

    def read() -> Iterator[tuple[Line, Arrival]]:
        if not found.header:
            yield first, found.read(first, _object(first))
        for line in rest:
            values = line.record(names) if found.header else _object(line)
            yield line, found.read(line, values)

    return found, read()


def _object(line: Line) -> dict[str, Any]:
    try:
        values = json.loads(line.text)
    except (ValueError, RecursionError):
        raise line.fault("line", "not JSON") from None
    if not isinstance(values, dict):
        raise line.fault("line", "not a JSON object")
    return values
