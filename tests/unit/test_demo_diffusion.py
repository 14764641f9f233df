"""The demo's table of a diffusion target: what its figures are of."""

from __future__ import annotations

from typing import Any

from deployments.denoiser_pool import DenoiserPool
from foredraft.client import CompletionResult
from foredraft.strict import parse
from foredraft_cli.demo_diffusion import compare, rows, ways

POOL = parse(DenoiserPool, {"service": {"model": "/m"}, "model_name": "blocks"})


def answer(tokens: tuple[int, ...], seconds: float, calls: int) -> CompletionResult:
    return CompletionResult("", tokens, seconds, {"num_target_passes": calls})


class Server:
    """Answers by the unmasking: one slot in a call, two, or with drafts three."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def complete(
        self, prompt: Any, sampling: Any, max_tokens: int, fields: Any, enabled: bool
    ) -> CompletionResult:
        self.asked.append(fields["model"])
        each = 1 if fields["unmasking"]["kind"] == "static" else 3 if enabled else 2
        return answer(tuple(range(max_tokens)), max_tokens / each, max_tokens // each)


async def test_ways_alternate_and_are_told_apart() -> None:
    server = Server()
    table = await compare(server, [[1, 2]] * 4, 12, POOL)
    assert server.asked == ["blocks"] * 12
    cells = [list(column.cells) for column in table.columns]
    assert cells[0][2] == "tokens per call"
    assert [column[2] for column in cells[1:]] == ["1.00", "2.00", "3.00"]
    assert [column[1] for column in cells[1:]] == ["0.50x", "1.00x", "1.50x"]
    assert cells[3][4] == "yes"
    assert [way.drafted for way in ways(POOL)] == [False, False, True]


def test_another_text_is_said_to_be_one() -> None:
    one, two = answer((1, 2, 3), 1.0, 3), answer((1, 2, 4), 1.0, 3)
    assert rows([[one], [one], [two]])[-1][-1] == "no"
