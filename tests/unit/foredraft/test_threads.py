"""Work in threads, also in a process that ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from foredraft.errors import Unavailable
from foredraft.threads import in_thread

# The main thread ends; the event loop's goes on, as a replica's does that Serve ends.
ENDING = """
import asyncio, threading
from foredraft.errors import Unavailable
from foredraft.threads import in_thread

async def late():
    await asyncio.sleep(0.3)
    try:
        await in_thread(int)
    except Unavailable as error:
        print("unavailable:", error, flush=True)

# What runs at the interpreter's end waits for the loop; executors have ended before.
loop = threading.Thread(target=asyncio.run, args=(late(),))
loop.start()
"""


async def test_work_runs_in_another_thread_and_its_errors_are_its_own() -> None:
    with ThreadPoolExecutor(1) as executor:
        for chosen in (None, executor):
            assert await in_thread(threading.get_ident, chosen) != threading.get_ident()

    def fails() -> None:
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        await in_thread(fails)


async def test_an_executor_that_has_ended_makes_the_replica_unavailable() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(Unavailable, match="ending"):
        in_thread(int, executor)


def test_a_process_that_ends_takes_no_more_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("unavailable: this replica is ending"), done.stderr
