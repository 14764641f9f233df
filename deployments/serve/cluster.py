"""A local cluster with Foredraft in it: started, waited for, shut down."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deployments.config import ServeFile
from deployments.serve.platform import prepare_environment
from foredraft.errors import Unavailable

_START_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """Where a started application answers, and how it described itself when it became ready."""

    url: str
    health: dict[str, object]


@contextmanager
def running(file: ServeFile, temp_dir: str | None = None) -> Iterator[RunningCluster]:
    """Start Ray if none is running, deploy the file's application, yield when it is ready.

    On exit the application is deleted and, if Ray was started here, Ray is shut down. Raises
    Unavailable when the application is not ready within three minutes.
    """
    prepare_environment()
    import ray
    from ray import serve

    from deployments.app import build

    started = not ray.is_initialized()
    if started:
        # num_cpus is what the replicas reserve, not what they use: see PoolConfig.num_cpus.
        ray.init(include_dashboard=False, log_to_driver=False, _temp_dir=temp_dir)
    try:
        http = file.http_options
        serve.start(
            proxy_location=file.proxy_location,
            http_options={"host": http.host, "port": http.port},
        )
        entry = file.application
        serve.run(build(entry.args.model_dump()), name=entry.name, route_prefix=entry.route_prefix)
        url = f"http://{http.host}:{http.port}{entry.route_prefix.rstrip('/')}"
        yield RunningCluster(url, _wait_until_ready(url))
    finally:
        if started:
            serve.shutdown()
            ray.shutdown()
        else:
            serve.delete(file.application.name)


def _wait_until_ready(url: str) -> dict[str, object]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310
                return dict(json.load(answer))
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise Unavailable("the application did not become ready")
