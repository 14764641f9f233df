"""A local cluster with Foredraft in it: started, waited for, drained, shut down."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.config import ServeFile, located
from deployments.ingress.doors.keys import read_keys
from deployments.preflight import check_models
from deployments.serve.deploying import deploy, wait_until_deployed
from deployments.serve.environment import prepare_environment, require_token
from deployments.serve.platform.applications import deployment_failures
from deployments.serve.platform.local_ray import (
    forget_serve,
    group_of_its_own,
    importing_this_code,
    no_new_ray,
    runs_already,
    started_here,
)
from deployments.serve.platform.replicas import call_every_replica
from deployments.serve.processes import replicas
from foredraft.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

_START_TIMEOUT_S = 180.0
# What a drain may take beyond its grace period.
_DRAIN_MARGIN_S = 5.0

# Starts a file's application on the cluster that this process is connected to.
Start = Callable[[ServeFile], "DeploymentHandle[Any]"]


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
def running(
    file: ServeFile, temp_dir: str | None = None, start: Start | None = None
) -> Iterator[RunningCluster]:
    """Start the file's application, yield when it is ready; start Ray first if none is running.

    start is `started` or `deployed`; by default the quicker one that the file can be started by.
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
    from ray import serve

    # A signal may end Ray's processes first: Serve's threads here would start others.
    with no_new_ray(), _connected(file, temp_dir) as ours:
        status = serve.status()
        check_ports(file, proxies=bool(status.proxies))
        if entry.name in status.applications:
            raise ConfigError(
                f"an application {entry.name} runs on this cluster already", param="name"
            )
        serve.start(
            proxy_location=file.proxy_location,
            http_options=http.model_dump(mode="json", exclude_none=True),
            logging_config=logs,
        )
        try:
            try:
                handle = (start or _starting(file))(file)
            except RuntimeError as error:
                failures = deployment_failures(entry.name)
                raise Unavailable("; ".join(failures) or str(error)) from None
            instances = call_every_replica(handle, "instance", timeout_s=_START_TIMEOUT_S)
            health = wait_until_ready(file.url, instances, trusted(file.certificate))
            direct = entry.args.ingress.direct
            yield RunningCluster(file.url, health, "" if direct is None else direct.url)
            _drain(handle, entry.name, entry.args.ingress.drain_s)
        finally:
            if not ours:
                serve.delete(entry.name)


@contextmanager
def _connected(file: ServeFile, temp_dir: str | None) -> Iterator[bool]:
    """Connect this process to a Ray, where it is to none, and yield whether it started that Ray."""
    import ray

    if ray.is_initialized():
        yield False
        return
    require_token()
    joined = runs_already()
    if not joined:
        # Here, too: to start Ray takes seconds.
        check_ports(file)
    # num_cpus is what the replicas reserve, not what they use: see PoolConfig.num_cpus.
    address = None if joined else "local"
    with group_of_its_own(), importing_this_code():
        ray.init(address, include_dashboard=False, log_to_driver=False, _temp_dir=temp_dir)
    ours = started_here()
    try:
        yield ours
    finally:
        # A Ray of our own ends with all that runs on it. To end Serve first takes seconds more, and
        # half a minute where a signal has ended Ray's processes already.
        if ours:
            forget_serve()
        ray.shutdown()


def _drain(handle: DeploymentHandle[Any], application: str, grace_s: float) -> None:
    """Return when the ingress has ended what is under way; whatever is wrong with it, it goes.

    A signal may have ended Ray already, or do so meanwhile: the ingress had the signal, too, and
    ends by itself.
    """
    import ray

    until = time.monotonic() + grace_s + _DRAIN_MARGIN_S
    with suppress(Exception):
        if ray.is_initialized():
            call_every_replica(handle, "drain", grace_s, timeout_s=grace_s + _DRAIN_MARGIN_S)
            return
    while replicas("ingress", application) and time.monotonic() < until:
        time.sleep(0.1)


def _starting(file: ServeFile) -> Start:
    """Return the quickest way to start a file: serve.run takes no autoscaling policy."""
    return started if file.application.autoscaling_policy is None else deployed


def started(file: ServeFile) -> DeploymentHandle[Any]:
    """Start a file's application, not to be updated; return its handle once it runs.

    Raise RuntimeError when it fails.
    """
    from ray import serve

    from deployments.app import build

    entry = file.application
    return serve.run(
        build(entry.args.model_dump()),
        name=entry.name,
        route_prefix=entry.route_prefix,
        logging_config=file.logging_config.model_dump(),
    )


def deployed(file: ServeFile) -> DeploymentHandle[Any]:
    """Deploy a file, as `foredraft deploy` does later ones; return the application's handle.

    Raise Unavailable when it fails, or does not run within three minutes.
    """
    from ray import serve

    deploy(file)
    name = file.application.name
    wait_until_deployed(name, _START_TIMEOUT_S, anew=True)
    return serve.get_app_handle(name)


def check_ports(file: ServeFile, proxies: bool = False) -> None:
    """Raise ConfigError unless every address of a file can be listened on.

    proxies is true where Serve's are there already. The ingress listens where its replica is: here,
    where this is the one node.
    """
    http, ingress = file.http_options, file.application.args.ingress
    if file.proxy_location != "Disabled" and not proxies:
        check_port(http.host, http.port, "http_options")
    for name, door in (("grpc", ingress.grpc), ("direct", ingress.direct)):
        if door is not None and door.port:
            check_port(door.host, door.port, f"ingress.{name}")


def check_port(host: str, port: int, param: str) -> None:
    """Raise ConfigError unless the address can be listened on.

    Serve's proxies, and ingress replicas, share their port with whoever else is willing to.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As the servers do: what is left of old connections is no server.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(
            f"{param}: cannot listen on {host}:{port}: {error.strerror}", param=param
        ) from None


def trusted(certificate: Path | None) -> ssl.SSLContext | None:
    """Return what trusts a server's own certificate, whatever name it is for; None for HTTP."""
    if certificate is None:
        return None
    context = ssl.create_default_context(cafile=certificate)
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
