"""`foredraft chaos`: load of all kinds on a local cluster whose processes are killed, stopped and
slowed; every completed text is held to plain decoding, and nothing may be left over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import check_port, running
from deployments.serve.processes import replicas
from foredraft_cli.chaos import bodies
from foredraft_cli.chaos.faults import Faults
from foredraft_cli.chaos.held import SERVICES, held
from foredraft_cli.chaos.load import Load
from foredraft_cli.chaos.memory import memory_mib
from foredraft_cli.chaos.tally import Tally
from foredraft_cli.options import ConfigOption
from foredraft_cli.prompts.held_out import prompts
from orchestrator.length.config import ByTemperatureConfig, FixedConfig

app = typer.Typer(add_completion=False)

_SETTLE_S = 60.0
# Seconds of load without faults for each minute with them, before memory is first read: a process
# that has served nothing holds less.
_WARM_S = 6.0


@app.command()
def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults go on.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the faults and of the load.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write it.")] = None,
    config: ConfigOption = EMBEDDED_FILE,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 8,
    port: Annotated[int, typer.Option(min=1, max=65535, help="HTTP port.")] = 8000,
) -> None:
    """Kill, stop and slow a cluster under load; exit 1 where a text differs, a request fails by a
    drafter's fault, or something is left over.
    """
    check_port("127.0.0.1", port, "port")
    with running(_wanted(read(config), port)) as cluster:
        found = asyncio.run(_chaos(cluster.url, minutes, seed, clients))
    text = json.dumps(found, indent=1)
    typer.echo(text)
    if json_file is not None:
        json_file.write_text(text + "\n")
    if found["compared"] != found["identical"] or found["failed_by_drafter"] or found["leaked"]:
        raise typer.Exit(1)


def _wanted(file: ServeFile, port: int) -> ServeFile:
    """Return the file with two replicas of each service, which always drafts."""
    values = file.model_dump()
    [application] = values["applications"]
    args = application["args"]
    for service in SERVICES:
        args[service] |= {"num_replicas": 2}
    args["verifier"]["service"]["threads"] = 1
    lengths = ByTemperatureConfig(greedy=FixedConfig(k=12), sampled=FixedConfig(k=5))
    args["orchestrator"]["adl"] = lengths.model_dump()
    args["ingress"] |= {"direct": {"port": port}, "pin_cpus": ()}
    values["proxy_location"] = "Disabled"
    return ServeFile.model_validate(values)


async def _chaos(url: str, minutes: float, seed: int, clients: int) -> dict[str, Any]:
    tally, random = Tally(), Random(seed)
    faults = Faults(replicas, Random(random.random()), time.monotonic)
    load = Load(url, bodies.good(prompts(12)), faults.felt, tally)
    await load.learn()
    counts = _num_replicas()

    def work(until: float) -> list[Coroutine[Any, Any, None]]:
        return [load.run(until, Random(random.random())) for _ in range(clients)]

    await asyncio.gather(*work(time.monotonic() + _WARM_S * minutes))
    await _leaked(counts)
    before = memory_mib()
    until = time.monotonic() + 60 * minutes
    await asyncio.gather(faults.run(until), *work(until))
    leaked = await _leaked(counts)
    await load.repeat()
    after = memory_mib()
    return {
        "compared": tally.compared,
        "identical": tally.identical,
        "failed_by_drafter": tally.failed_by_drafter,
        "leaked": leaked,
        "memory_mib": {"before": before._asdict(), "after": after._asdict()},
        "other_failures": dict(sorted(tally.other_failures.items())),
        "resumed": tally.resumed,
        "cancelled": tally.cancelled,
        "bombs": tally.bombs,
        "longest_gap_s": round(tally.longest_gap_s, 2),
        "faults": faults.counts(),
        "differences": tally.differences,
    }


def _num_replicas() -> dict[str, int]:
    return {service: len(replicas(service)) for service in (*SERVICES, "ingress")}


async def _leaked(counts: dict[str, int]) -> dict[str, float]:
    """Return what the replicas still hold, once they had time to give it back; and by how many
    processes each service differs from its count.
    """
    until = time.monotonic() + _SETTLE_S
    while True:
        found = await asyncio.to_thread(held, "foredraft")
        if found is not None:
            now = _num_replicas()
            found |= {
                f"{each} processes": now[each] - n for each, n in counts.items() if now[each] != n
            }
        if (found is not None and not found) or time.monotonic() > until:
            return {"no answer": 1.0} if found is None else found
        await asyncio.sleep(0.5)
