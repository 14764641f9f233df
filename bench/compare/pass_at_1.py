"""HumanEval pass@1 of the served model with and without speculation: same texts, same score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.progress import track
from tokenizers import Tokenizer

from bench.compare.cluster import run_of
from bench.compare.code_block import program
from bench.compare.rows import Row, Run, Setting, row
from bench.compare.sandbox import Outcome, run
from bench.compare.workload import AS_CONFIGURED, PLAIN
from deployments.config import ServeFile
from deployments.serve.cluster import running
from foredraft.chat_template import read_chat_template
from foredraft.client import CompletionClient, CompletionResult
from foredraft_cli.prompts.held_out import sampling
from foredraft_cli.prompts.human_eval import Task
from foredraft_cli.prompts.sets import chat_ids

MAX_TOKENS = 512
_MODES = (PLAIN, AS_CONFIGURED)


@dataclass(frozen=True, slots=True)
class Scored:
    """A task's two answers: whether their tokens are the same, and how each did in the test.

    answer is the plain one's text.
    """

    id: str
    identical: bool
    plain: Outcome
    speculative: Outcome
    answer: str


@dataclass(frozen=True, slots=True)
class Score:
    """All tasks, and the row of the answers' speed."""

    tasks: tuple[Scored, ...]
    row: Row

    def summary(self) -> str:
        """Return the score in one line."""
        plain, fast = self._pass_at_1("plain"), self._pass_at_1("speculative")
        same = sum(task.identical for task in self.tasks)
        return (
            f"HumanEval pass@1 over {len(self.tasks)} tasks, temperature 0, at most "
            f"{self.row.max_tokens} tokens: plain {plain:.1%}, speculative {fast:.1%}; "
            f"the same completion in {same} of {len(self.tasks)}; "
            f"{self.row.speedup:.2f}x ({self.row.low:.2f} to {self.row.high:.2f})"
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "pass_at_1": {name: self._pass_at_1(name) for name in ("plain", "speculative")},
            "identical": sum(task.identical for task in self.tasks) / len(self.tasks),
            "rows": [asdict(self.row)],
            "tasks": [asdict(task) for task in self.tasks],
        }

    def _pass_at_1(self, name: str) -> float:
        passed = [getattr(task, name) is Outcome.PASSED for task in self.tasks]
        return sum(passed) / len(passed)


async def measure(pair: str, file: ServeFile, tasks: Sequence[Task]) -> Score:
    """Return the score of a pair's answers through a cluster of its own."""
    tokenizer_file: Path = file.application.args.tokenizer_file
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    template = read_chat_template(tokenizer_file.parent)
    answers: list[list[CompletionResult]] = []
    with running(file) as cluster:
        async with CompletionClient(cluster.url) as client:
            for task in track(tasks, "Answering", transient=True):
                prompt = chat_ids(task.message, tokenizer, template)
                # The two take turns, so that the machine's moods hit both.
                answers.append(
                    [
                        await client.complete(prompt, sampling(0.0, 0), MAX_TOKENS, **mode.options)
                        for mode in _MODES
                    ]
                )
    scored = [
        score(task, plain, fast)
        for task, (plain, fast) in track(
            list(zip(tasks, answers, strict=True)), "Checking", transient=True
        )
    ]
    runs: list[list[Run]] = [[run_of(one) for one in each] for each in zip(*answers, strict=True)]
    setting = Setting(pair, "humaneval", "cluster", 0.0, MAX_TOKENS)
    return Score(tuple(scored), row(setting, AS_CONFIGURED.name, runs[1], runs[0]))


def score(task: Task, plain: CompletionResult, fast: CompletionResult) -> Scored:
    """Return how both answers do; each is checked, whether they are the same or not."""
    outcomes = {
        name: run(program(task.prompt, answer.text, task.entry_point, task.test))
        for name, answer in (("plain", plain), ("speculative", fast))
    }
    same = plain.tokens == fast.tokens
    return Scored(id=task.id, identical=same, answer=plain.text, **outcomes)
