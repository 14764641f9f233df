"""`foredraft bench kills`: targets' replicas killed and stopped in every step of a request."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from bench.kills.stream import Stream
from bench.kills.trials import STOPPED_S, Loss, Step, Target, Trial, trials
from bench.load.traffic import connect
from bench.rolling.replaced import replaced
from deployments.config import ServeFile
from deployments.serve.cluster import running
from deployments.serve.processes import replicas
from foredraft.client import completion_body
from foredraft.errors import ConfigError, ForedraftError
from foredraft_cli.prompts.held_out import prompts, sampling

_MAX_TOKENS = 64
_TEXTS = 6
_TIMEOUT_S = 180.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class KillPlan(NamedTuple):
    """How many replicas of a target are lost, of how many, when by which seed, and how; and how
    many characters a prompt has, which another replica reads then.
    """

    target: Target
    replicas: int
    trials: int
    seed: int
    losses: tuple[Loss, ...]
    prompt_characters: int


class Lost(NamedTuple):
    """What a client saw of a trial: the longest time without a token, None after an error."""

    trial: Trial
    identical: bool
    longest_gap_s: float | None
    error: str = ""


# Tokens that came before the step begins.
_TOKENS = {
    Step.PREFILL: 0,
    Step.FIRST: 1,
    Step.MIDDLE: _MAX_TOKENS // 2,
    Step.LAST: _MAX_TOKENS - 4,
}


async def measure(file: ServeFile, plan: KillPlan, say: Callable[[str], None]) -> list[Lost]:
    """Run a plan's trials on a cluster of its own."""
    found: list[Lost] = []
    wanted = _wanted(file, plan)
    with running(wanted) as cluster:
        for trial in trials(plan.trials, plan.replicas, plan.seed, plan.losses):
            found.append(await _tried(cluster.url, wanted, plan, trial))
            say(summary(found[-1]))
    return found


def _wanted(file: ServeFile, plan: KillPlan) -> ServeFile:
    """Return the file with so many of the target's replicas, which share this machine's cores.

    Raise ConfigError if the file has no such target.
    """
    values = file.model_dump()
    args = values["applications"][0]["args"]
    if args[plan.target.deployment] is None:
        raise ConfigError(f"the file has no {plan.target.deployment}", param="target")
    pool = args[plan.target.deployment]
    pool["num_replicas"], pool["service"]["threads"] = plan.replicas, 1
    args["ingress"]["pin_cpus"] = args["drafter"]["pin_cpus"] = ()
    return ServeFile.model_validate(values)


async def _tried(url: str, file: ServeFile, plan: KillPlan, trial: Trial) -> Lost:
    """Lose a replica in a trial's way, and wait until all are back."""
    target, application = plan.target.deployment, file.application.name
    model, characters = plan.target.model(file.application.args), plan.prompt_characters
    text = prompts(_TEXTS)[trial.prompt % _TEXTS]
    prompt = (text * (characters // len(text) + 1))[:characters]
    params = sampling(trial.temperature, trial.prompt)
    async with connect() as http:

        def asked(enabled: bool) -> Stream:
            body = completion_body(prompt, params, _MAX_TOKENS, {"enabled": enabled})
            return Stream(http, url, plan.target.asked(body | {"model": model}))

        plain = await asked(False).read()
        before, stream = replicas(target, application), asked(True)
        used = _cpu_s(before)
        if trial.step is Step.OPENING:
            pid = before[trial.prompt % len(before)]
            os.kill(pid, trial.signal)
        answering = asyncio.create_task(stream.read())
        if trial.step is not Step.OPENING:
            await stream.until(_TOKENS[trial.step])
            await asyncio.sleep(trial.delay_s)
            pid = _busiest(used, _cpu_s(before))
            os.kill(pid, trial.signal)
        if trial.signal is signal.SIGSTOP:
            await asyncio.wait({answering}, timeout=STOPPED_S)
            # Serve may have ended what did not answer.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        try:
            answer = await answering
        except (aiohttp.ClientError, OSError, ForedraftError) as error:
            lost = Lost(trial, False, None, f"{type(error).__name__}: {error}")
        else:
            gap_s = max(answer.first_token_s, *answer.gaps_s, 0.0)
            lost = Lost(trial, answer.tokens == plain.tokens, round(gap_s, 3))
    if trial.signal is signal.SIGKILL:
        await replaced(target, application, pid, len(before), _TIMEOUT_S)
    return lost


def _cpu_s(pids: Sequence[int]) -> dict[int, float]:
    """Return the CPU seconds that each process used so far."""
    found = {}
    for pid in pids:
        # Behind a name that may hold anything: the state, then numbers.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[pid] = (int(fields[11]) + int(fields[12])) * _TICK_S
    return found


def _busiest(before: dict[int, float], after: dict[int, float]) -> int:
    """Return the process that used the most CPU time: the one that has the session."""
    return max(after, key=lambda pid: after[pid] - before[pid])


def summary(lost: Lost) -> str:
    """Return a trial in one line, for those who wait for the others."""
    trial, same = lost.trial, "identical" if lost.identical else "different"
    gap_s = lost.longest_gap_s
    seen = lost.error if gap_s is None else f"{same}, longest gap {gap_s:.2f} s"
    return f"{trial.signal.name}, {trial.step}, temperature {trial.temperature:g}: {seen}"


def as_json(found: Sequence[Lost]) -> dict[str, Any]:
    """Return all trials as plain values."""
    return {
        "trials": [
            each.trial._asdict()
            | {
                "signal": each.trial.signal.name,
                "identical": each.identical,
                "longest_gap_s": each.longest_gap_s,
                "error": each.error,
            }
            for each in found
        ]
    }


def as_markdown(found: Sequence[Lost]) -> str:
    """Return a row for each number of replicas, signal and step."""
    groups: dict[tuple[int, str, Step], list[Lost]] = defaultdict(list)
    for each in found:
        groups[each.trial.replicas, each.trial.signal.name, each.trial.step].append(each)
    head = [
        "| replicas | signal | step | trials | identical | longest gap, median s | longest s |",
        "|--:|---|---|--:|--:|--:|--:|",
    ]
    rows = []
    for (number, name, step), lost in groups.items():
        gaps = [each.longest_gap_s for each in lost if each.longest_gap_s is not None]
        same = sum(each.identical for each in lost)
        seen = f"{statistics.median(gaps):.2f} | {max(gaps):.2f}" if gaps else "- | -"
        rows.append(f"| {number} | {name} | {step} | {len(lost)} | {same} | {seen} |")
    return "\n".join([*head, *rows]) + "\n"
