"""What Ray and a replica's process have to be started with: environment, niceness, CPUs, token."""

from __future__ import annotations

import logging
import os
import sys

from deployments.serve.platform.local_ray import runs_already
from foredraft.errors import ConfigError

log = logging.getLogger(__name__)

# Ray runs its workers at nice 15 by default, which starves decoding beside any load.
# Serve's control loop, as often as Serve runs it, takes a twentieth of a core from decoding.
ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.25",
    # An autoscaling policy sees what replicas reported so long ago.
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


_AUTH_MODE = "RAY_AUTH_MODE"


def prepare_environment() -> None:
    """Set what Ray reads from the environment; call it before Ray is imported or started."""
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)


def check_environment() -> None:
    """Warn where Ray was started without what prepare_environment sets, as by `serve run`."""
    if os.environ.get(_AUTH_MODE, "").lower() != "token":
        log.warning(
            "Ray requires no token (%s): its open ports allow anybody to run code", _AUTH_MODE
        )
    missing = [f"{key}={value}" for key, value in ENVIRONMENT.items() if key not in os.environ]
    if missing:
        log.warning("Ray was started without %s; `foredraft serve` sets them", " ".join(missing))


def require_token() -> None:
    """Have a Ray that this process starts require its token; call it before ray.init.

    Ray does so unless the environment has it off, and makes the token (~/.ray/auth_token) if
    there is none. A Ray that runs already is as it was started. Raise ConfigError where the
    environment turns it off: Ray's ports would allow anybody to run code.
    """
    if runs_already():
        return
    mode = os.environ.get(_AUTH_MODE, "token")
    if mode.lower() != "token":
        raise ConfigError(
            f"{_AUTH_MODE} is {mode}: Ray's ports would allow anybody to run code; unset it",
            param=_AUTH_MODE,
        )


def prepare_replica() -> None:
    """Make up in a replica's process for what Ray was started without, as far as that can be."""
    prepare_environment()
    if hasattr(os, "setpriority"):
        wanted = int(os.environ["RAY_worker_niceness"])  # noqa: SIM112 - Ray's spelling
        try:
            if os.getpriority(os.PRIO_PROCESS, 0) > wanted:
                os.setpriority(os.PRIO_PROCESS, 0, wanted)
        except PermissionError:
            log.warning("this replica's niceness is above %d, and any load will slow it", wanted)


def pin(cpus: tuple[int, ...]) -> None:
    """Keep this thread, and those it starts, to the CPUs; ones that do not exist are left out.

    Only Linux can do that: elsewhere nothing is done.
    """
    present = os.sched_getaffinity(0).intersection(cpus) if sys.platform == "linux" else ()
    if present:
        os.sched_setaffinity(0, present)
