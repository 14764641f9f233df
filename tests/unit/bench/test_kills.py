"""`foredraft bench kills`: which trials there are, and how what was seen becomes a table."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

import aiohttp
import pytest
from aiohttp import web

from bench.kills.run import KillPlan, Lost, as_json, as_markdown, measure, summary
from bench.kills.stream import Stream
from bench.kills.trials import Loss, Step, Target, Trial, trials
from deployments.config import DIFFUSION_FILE, EMBEDDED_FILE, read
from foredraft.errors import ConfigError
from tests.support.cluster import free_port


def test_every_combination_comes_equally_often_and_a_seed_repeats_it() -> None:
    found = list(trials(100, 2, seed=3))
    ways = Counter((each.signal, each.step, each.temperature) for each in found)
    assert len(ways) == 2 * len(Step) * 2 and set(ways.values()) == {5}
    assert len({each.delay_s for each in found}) == 100
    assert found == list(trials(100, 2, seed=3)) != list(trials(100, 2, seed=4))


def test_a_row_for_each_number_signal_and_step() -> None:
    trial = Trial(2, signal.SIGKILL, Step.MIDDLE, 0.8, 0.01, 0)
    found = [Lost(trial, True, 1.0), Lost(trial, False, None, "Unavailable: gone")]
    assert as_markdown(found).splitlines()[2:] == [
        "| 2 | SIGKILL | a round | 2 | 1 | 1.00 | 1.00 |"
    ]
    assert as_markdown(found[1:]).splitlines()[2].endswith("| 1 | 0 | - | - |")
    assert summary(found[0]) == "SIGKILL, a round, temperature 0.8: identical, longest gap 1.00 s"
    assert summary(found[1]).endswith(": Unavailable: gone")
    [first, second] = json.loads(json.dumps(as_json(found)))["trials"]
    assert first["signal"] == "SIGKILL" and first["identical"] and first["error"] == ""
    assert second["longest_gap_s"] is None and second["error"] == "Unavailable: gone"


async def test_a_target_that_a_file_does_not_have_is_refused_before_a_cluster_starts() -> None:
    plan = KillPlan(Target.DIFFUSION, 2, 1, 1, tuple(Loss), 200)
    with pytest.raises(ConfigError, match="no denoiser"):
        await measure(read(EMBEDDED_FILE), plan, print)


def test_each_target_is_asked_by_its_name_for_what_it_can_do() -> None:
    both = read(DIFFUSION_FILE).application.args
    assert Target.AUTOREGRESSIVE.model(both) == "foredraft-embedded"
    assert Target.DIFFUSION.model(both) == "foredraft-diffusion"
    body = {"prompt": "a = 1", "max_tokens": 4, "seed": 3}
    assert Target.DIFFUSION.asked(body) == body | {"ignore_eos": True}
    filled = {"infill": ["a ", {"mask": 4}, "= 1"], "seed": 3}
    assert Target.ANY_SUBSET.asked(body) == filled


async def test_a_stream_is_followed_while_it_is_read() -> None:
    go_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for tokens in ([1], [2, 3]):
            chunk = json.dumps({"choices": [{"token_ids": tokens}]})
            await response.write(f"data: {chunk}\n\n".encode())
            await go_on.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    app, port = web.Application(), free_port()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as http:
        stream = Stream(http, f"http://127.0.0.1:{port}", {})
        reading = asyncio.create_task(stream.read())
        await stream.until(1)
        assert not reading.done()
        go_on.set()
        assert (await reading).tokens == (1, 2, 3)
        # An ended stream keeps nobody waiting.
        await stream.until(99)
    await runner.cleanup()
