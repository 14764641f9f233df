"""A local cluster with Foredraft in it: started, waited for, drained, shut down."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from deployments.config import HttpOptions, ServeFile, located
from deployments.ingress.doors.keys import read_keys
from deployments.preflight import check_models
from deployments.serve.platform import (
    call_every_replica,
    deployment_failures,
    prepare_environment,
    started_here,
)
from foredraft.errors import ConfigError, Unavailable

_START_TIMEOUT_S = 180.0
# What a drain may take beyond its grace period.
_DRAIN_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """Where a started application answers, and how it described itself when it became ready.

    direct_url is the ingress's own port, "" without one.
    """

    url: str
    health: dict[str, Any]
    direct_url: str = ""

    @property
    def refusal(self) -> str | None:
        """Why the drafter is not used, None if it is or is not there yet."""
        refused: str | None = (self.health["drafter"] or {}).get("refused")
        return refused


@contextmanager
def running(file: ServeFile, temp_dir: str | None = None) -> Iterator[RunningCluster]:
    """Deploy the file's application, yield when it is ready; start Ray first if none is running.

    On exit the requests under way get the ingress's drain_s to end; then the application is
    deleted and, if Ray was started here, Ray is shut down: whatever else runs on a cluster that was
    there before is left alone. Raises ConfigError for what cannot be started, before anything is,
    and Unavailable when the application fails or is not ready within three minutes.
    """
    entry, http = file.application, file.http_options
    logs = file.logging_config.model_dump()
    check_models(located(entry.args))
    if entry.args.ingress.keys_file is not None:
        read_keys(entry.args.ingress.keys_file)
    prepare_environment()
    import ray
    from ray import serve

    from deployments.app import build

    connected = ray.is_initialized()
    if not connected:
        # num_cpus is what the replicas reserve, not what they use: see PoolConfig.num_cpus.
        ray.init(include_dashboard=False, log_to_driver=False, _temp_dir=temp_dir)
    deployed = False
    try:
        status = serve.status()
        if not status.proxies:
            check_port(http)
        if entry.name in status.applications:
            raise ConfigError(
                f"an application {entry.name} runs on this cluster already", param="name"
            )
        serve.start(
            proxy_location=file.proxy_location,
            http_options=http.model_dump(mode="json", exclude_none=True),
            logging_config=logs,
        )
        deployed = True
        try:
            handle = serve.run(
                build(entry.args.model_dump()),
                name=entry.name,
                route_prefix=entry.route_prefix,
                logging_config=logs,
            )
        except RuntimeError as error:
            failures = deployment_failures(entry.name)
            raise Unavailable("; ".join(failures) or str(error)) from None
        url = http.url + entry.route_prefix.rstrip("/")
        instances = call_every_replica(handle, "instance", timeout_s=_START_TIMEOUT_S)
        health = wait_until_ready(url, instances, trusted(http))
        direct = entry.args.ingress.direct
        yield RunningCluster(url, health, "" if direct is None else direct.url)
        grace_s = entry.args.ingress.drain_s
        # Whatever is wrong with an ingress by now, it goes all the same.
        with suppress(Exception):
            call_every_replica(handle, "drain", grace_s, timeout_s=grace_s + _DRAIN_MARGIN_S)
    finally:
        if not connected and started_here():
            serve.shutdown()
        elif deployed:
            serve.delete(entry.name)
        if not connected:
            ray.shutdown()


def check_port(http: HttpOptions) -> None:
    """Raise ConfigError unless the address can be listened on.

    Serve's proxies share their port with whoever else is willing to.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            http.host, http.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            # As the proxies do: what is left of old connections is no server.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(
            f"http_options: cannot listen on {http.host}:{http.port}: {error.strerror}",
            param="http_options",
        ) from None


def trusted(http: HttpOptions) -> ssl.SSLContext | None:
    """Return what trusts the proxy's own certificate, whatever name it is for; None for HTTP."""
    if http.ssl_certfile is None:
        return None
    context = ssl.create_default_context(cafile=http.ssl_certfile)
    context.check_hostname = False
    # A chain rarely has its root: each certificate in the file is one to trust.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def wait_until_ready(
    url: str,
    instances: Collection[str],
    context: ssl.SSLContext | None = None,
    timeout_s: float = _START_TIMEOUT_S,
) -> dict[str, Any]:
    """Return /health once one of our own instances answers it.

    Raise Unavailable when another server does, or none within timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            health_url = f"{url}/health"
            with urllib.request.urlopen(health_url, timeout=5, context=context) as answer:  # noqa: S310
                health = json.load(answer)
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
            continue
        except ValueError:
            health = None
        if not isinstance(health, dict) or health.get("instance") not in instances:
            raise Unavailable(f"another server answers at {url}")
        return health
    raise Unavailable(f"the application did not become ready at {url}")
