"""A recorded run: what every round of every request drafted, kept, took and cost. No texts.

The file is JSON Lines, compressed if its name ends in .gz: a header, then one request a line
(docs/recorded_runs.md).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Literal, cast

from pydantic import Field, ValidationError, model_validator

from foredraft.errors import ConfigError
from foredraft.limits import MAX_DRAFT, MAX_PREFIX
from foredraft.strict import StrictModel

MAX_REQUESTS, MAX_ROUNDS = 1_000_000, 100_000
_MAX_LINE = 64 << 20

Seconds = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=MAX_PREFIX)]


class Header(StrictModel):
    """The file's first line."""

    format: Literal["foredraft-recorded-run"] = "foredraft-recorded-run"
    version: Literal[1] = 1
    model: str = Field(default="", max_length=256)
    note: str = Field(default="", max_length=1024)


class RecordedRound(StrictModel):
    """One round.

    A draft of up to k tokens was requested; `offered` came, the first `bought` were verified, and
    of these the nodes `kept` were accepted; the round committed `tokens`. began_s is since the
    request's arrival; draft_wait_s and verify_s are the orchestrator's, verifier_queue_s and
    verifier_s a part of verify_s, drafter_s the drafter's own. sessions, pass_s, row_s and draft_s
    are the verifier's price.
    """

    k: Annotated[int, Field(ge=0, le=MAX_DRAFT)]
    offered: Annotated[int, Field(ge=0, le=MAX_DRAFT)]
    bought: Annotated[int, Field(ge=0, le=MAX_DRAFT)]
    kept: tuple[Annotated[int, Field(ge=0, lt=MAX_DRAFT)], ...] = Field(max_length=MAX_DRAFT)
    tokens: Annotated[int, Field(ge=1, le=MAX_DRAFT + 1)]
    source: Literal["none", "drafter", "ngram"]
    led_by: Literal["orchestrator", "verifier"]
    ahead: Literal["no", "hit", "miss"]
    began_s: Seconds
    draft_wait_s: Seconds
    verify_s: Seconds
    verifier_queue_s: Seconds
    verifier_s: Seconds
    drafter_s: Seconds
    sessions: Count
    pass_s: Seconds
    row_s: Seconds
    draft_s: Seconds

    @model_validator(mode="after")
    def _possible(self) -> RecordedRound:
        ascends = all(a < b for a, b in zip(self.kept, self.kept[1:], strict=False))
        if not ascends or not self.bought <= self.offered or len(self.kept) > self.tokens:
            raise ValueError("kept, bought, offered and tokens do not fit each other")
        if self.kept and self.kept[-1] >= self.bought:
            raise ValueError("kept names a node that was not verified")
        return self


class RecordedRequest(StrictModel):
    """One request: it arrived arrived_s after the run's start."""

    arrived_s: Seconds
    prompt_tokens: Annotated[int, Field(ge=1, le=MAX_PREFIX)]
    output_tokens: Annotated[int, Field(ge=1, le=MAX_PREFIX)]
    temperature: Annotated[float, Field(ge=0, le=100)]
    ttft_s: Seconds
    seconds: Seconds
    rounds: tuple[RecordedRound, ...] = Field(min_length=1, max_length=MAX_ROUNDS)

    @model_validator(mode="after")
    def _complete(self) -> RecordedRequest:
        if sum(one.tokens for one in self.rounds) != self.output_tokens:
            raise ValueError("the rounds' tokens are not the request's")
        return self


class RecordedRun(StrictModel):
    """A whole file."""

    header: Header
    requests: tuple[RecordedRequest, ...] = Field(min_length=1, max_length=MAX_REQUESTS)


def write_run(path: Path, header: Header, requests: Iterable[RecordedRequest]) -> None:
    """Write a recorded run; the file is there once it is complete."""
    partial = path.with_name(path.name + ".partial")
    with _opened(partial, "w", path.suffix == ".gz") as file:
        for each in (header, *requests):
            file.write(each.model_dump_json() + "\n")
    partial.rename(path)


def read_run(path: Path) -> RecordedRun:
    """Return a recorded run; raise ConfigError naming the line and the field that is wrong."""
    try:
        with _opened(path, "r", path.suffix == ".gz") as file:
            lines = _lines(path, file)
            header = next(lines, None)
            if header is None:
                raise _refused(path, 1, "the file is empty")
            first = _parsed(path, 1, Header, header)
            requests = tuple(
                _parsed(path, number, RecordedRequest, line)
                for number, line in enumerate(islice(lines, MAX_REQUESTS), 2)
            )
            if next(lines, None) is not None:
                raise _refused(path, MAX_REQUESTS + 2, "there are too many requests")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", param="run") from None
    if not requests:
        raise _refused(path, 2, "there are no requests")
    return RecordedRun(header=first, requests=requests)


def _opened(path: Path, mode: Literal["r", "w"], compressed: bool) -> IO[str]:
    if compressed:
        return TextIOWrapper(cast("IO[bytes]", gzip.open(path, f"{mode}b")), encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        if len(line) > _MAX_LINE:
            raise _refused(path, number, "the line is too long")
        yield line


def _parsed(path: Path, number: int, model: Any, line: str) -> Any:
    try:
        return model.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise _refused(path, number, f"not JSON: {error}") from None
    except RecursionError:
        raise _refused(path, number, "not JSON that is read here") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "line"
        raise _refused(path, number, f"{field}: {first['msg']}") from None


def _refused(path: Path, number: int, reason: str) -> ConfigError:
    return ConfigError(f"{path}:{number}: {reason}", param="run")
