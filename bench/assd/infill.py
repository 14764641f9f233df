"""How well holes of held-out code are filled: by an any-subset target, and with left context alone.

Single lines and spans of three, as in the infilling tasks of the ASSD paper (Tables 2 and 3).
"""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from bench.assd.rounds import decide
from bench.assd.texts import Masked
from bench.assd.ways import served
from bench.papers.inference.bootstrap import estimate, quotient
from bench.papers.inference.figure import Figure
from foredraft.layout import with_hole
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from foredraft_cli.prompts.held_out import rows
from verifier_service.targets.engine import VerifierEngine

SPANS = {"line": 1, "three lines": 3}


class Task(NamedTuple):
    """Code with lines left out."""

    module: str
    before: str
    hole: str
    after: str


class Quality(NamedTuple):
    """How often a hole came out as it was and the code still parses, and the F1 of tokens."""

    model: str
    span: str
    tasks: int
    exact: Figure
    parses: Figure
    token_f1: Figure


def tasks(lines: int, count: int, development: bool = False) -> list[Task]:
    """Return one task of so many lines of each held-out text that parses: `count` at most."""
    found = []
    for number, each in enumerate(rows(development)):
        parts = each["text"].splitlines(keepends=True)
        starts = [
            at
            for at in range(1, len(parts) - lines)
            if all(part.strip() for part in parts[at : at + lines])
        ]
        if not starts or not parses(each["text"]):
            continue
        at = int(np.random.default_rng(number).choice(starts))
        cut = ["".join(parts[:at]), "".join(parts[at : at + lines]), "".join(parts[at + lines :])]
        found.append(Task(each["module"], *cut))
    return found[:count]


def parses(code: str) -> bool:
    """Whether code, of any indentation, is Python."""
    try:
        ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError):
        return False
    return True


def token_f1(found: Sequence[int], right: Sequence[int]) -> float:
    """Return the F1 of two bags of tokens."""
    both = sum((Counter(found) & Counter(right)).values())
    return 2 * both / (len(found) + len(right))


class Filler:
    """Fills holes with tokens of the greatest probability."""

    def __init__(
        self, tokenizer: Tokenizer, any_subset: VerifierEngine, ar: VerifierEngine
    ) -> None:
        self._tokenizer = tokenizer
        self._any_subset, self._ar = any_subset, ar

    def quality(self, span: str, chosen: Sequence[Task]) -> list[Quality]:
        """Return how both models fill the tasks that fit them."""
        fitting = [each for each in chosen if self._length(each) <= self._any_subset.info.max_len]
        ways = {"any-subset": self._infilled, "left context alone": self._continued}
        found = []
        for name, fill in ways.items():
            scored = [(task.module, self._scores(task, fill(task))) for task in fitting]
            figures = [
                Figure.of(estimate([(m, (s[at], 1.0)) for m, s in scored], quotient))
                for at in range(3)
            ]
            found.append(Quality(name, span, len(fitting), *figures))
        return found

    def _scores(self, task: Task, filled: list[int]) -> tuple[float, float, float]:
        text = str(self._tokenizer.decode(filled, skip_special_tokens=False))
        return (
            float(text.strip() == task.hole.strip()),
            float(parses(task.before + text + task.after)),
            token_f1(filled, self._encoded(task.hole)),
        )

    def _infilled(self, task: Task) -> list[int]:
        before, hole, after = map(self._encoded, (task.before, task.hole, task.after))
        layout = with_hole(len(before), len(hole), len(after))
        text = Masked(task.module, layout, (*before, *after), 0)
        return list(served(self._any_subset, text, SamplingParams(), 5).tokens)

    def _continued(self, task: Task) -> list[int]:
        """As many tokens as were left out, up to the end of the last of their lines."""
        engine, prompt = self._ar, tuple(self._encoded(task.before))
        count, lines = len(self._encoded(task.hole)), task.hole.count("\n")
        tokens: list[int] = []
        handle = engine.open(VerifyOpen("ar", prompt, SamplingParams(), count, 0))
        while len(tokens) < count:
            tokens += decide(engine, handle, "ar", (*prompt, *tokens)).next_tokens
            if str(self._tokenizer.decode(tokens)).count("\n") >= lines:
                break
        engine.close(handle)
        return tokens

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _length(self, task: Task) -> int:
        return sum(len(self._encoded(part)) for part in (task.before, task.hole, task.after))


def as_markdown(found: Sequence[Quality]) -> str:
    """Return the figures as a table."""
    lines = ["| left out | filled by | tasks | as it was | parses | token F1 |"]
    lines.append("|---|---|---|---|---|---|")
    for each in found:
        cells = [each.span, each.model, str(each.tasks)]
        cells += [f"{f.value:.1%} ({f.low:.1%} to {f.high:.1%})" for f in each[3:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
