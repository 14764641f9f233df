"""What of Ray is alpha or private; memory.py has the rest."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foredraft.errors import ConfigError, TensorLost, Unavailable

if TYPE_CHECKING:
    from ray.serve._private.application_state import StatusOverview
    from ray.serve.handle import DeploymentHandle

_RUNNING_S = 2.0
# Between two looks at whether this replica is being stopped, or a handle knows of replicas.
_LOOK_S = 0.1
# Until then a new handle has its replicas.
_KNOWN_S = 2.0

_CONNECT_S = 2.0


def runs_already() -> bool:
    """Return whether a Ray runs that ray.init joins.

    One that was killed leaves the file behind that names it; ray.init would wait for it for
    minutes.
    """
    from ray._private.services import find_bootstrap_address

    if os.environ.get("RAY_ADDRESS"):
        return True
    host, _, port = (find_bootstrap_address(None) or "").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def importing_this_code() -> Iterator[None]:
    """Have the workers of a Ray that is connected to within import the code that runs here.

    They look for modules in the driver's working directory first. Where that is a checkout, and
    Foredraft is installed elsewhere, it has the same packages without the compiled library:
    replicas would compute by the slow reference.
    """
    package = Path(__file__).parents[1]
    other = Path.cwd() / package.name
    if not other.is_dir() or other.samefile(package):
        yield
        return
    with chdir(package.parent):
        yield


def started_here() -> bool:
    """Return whether this process started the Ray cluster that it is connected to."""
    from ray._private import worker

    node = worker._global_node
    return node is not None and bool(node.head)


@contextmanager
def group_of_its_own() -> Iterator[None]:
    """Have what is started meanwhile be in another process group than this process.

    Ray starts its processes in the group of who calls it, where a raylet that gets the group's
    SIGTERM kills its workers at once, those with requests under way included. It takes no option
    for this: its processes do so between fork and exec.
    """
    global _apart
    _apart = True
    try:
        yield
    finally:
        _apart = False


def _leave_group() -> None:
    if _apart:
        os.setpgid(0, 0)


_apart = False
os.register_at_fork(after_in_child=_leave_group)


@contextmanager
def no_new_ray() -> Iterator[None]:
    """Have no call start a Ray, as all do by default, where the one that was there has ended."""
    from ray._private import auto_init_hook

    before = auto_init_hook.enable_auto_connect
    auto_init_hook.enable_auto_connect = False
    try:
        yield
    finally:
        auto_init_hook.enable_auto_connect = before


def forget_serve() -> None:
    """Forget the Serve of a Ray that is about to end, without ending it.

    What this process knows of it would be taken for the Serve of the next Ray: both have job 1.
    """
    from ray.serve import context

    context._disconnect()


def call_every_replica(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """Return what a method answers in each of a deployment's replicas.

    Serve's handles block in no thread that runs an event loop, as its caller's may. A new handle
    knows of no replicas for a moment. Raise Unavailable where there are none for longer.
    """
    from ray.serve.exceptions import DeploymentUnavailableError

    until = time.monotonic() + _KNOWN_S
    with ThreadPoolExecutor(1) as caller:
        while True:
            call = caller.submit(
                lambda: list(handle.broadcast(method, *args).results(timeout_s=timeout_s))
            )
            try:
                return call.result()
            except DeploymentUnavailableError:
                if time.monotonic() > until:
                    raise Unavailable("no replica is running") from None
            time.sleep(_LOOK_S)


def application_status(application: str) -> StatusOverview:
    """Return the status of an application, NOT_STARTED if there is none, and of its deployments.

    serve.status makes the schema of all that runs: too slow to be called again and again beside
    replicas that load.
    """
    from ray.serve._private.application_state import ApplicationStatusInfo, StatusOverview
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ApplicationStatus

    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return StatusOverview(ApplicationStatusInfo(ApplicationStatus.NOT_STARTED))
    found: StatusOverview = client.get_serve_status(application)
    return found


def deployment_failures(application: str) -> list[str]:
    """Return why the application's deployments failed, a line for each that did.

    Serve's message holds a replica's traceback, whose last line has the cause.
    """
    failures = []
    for deployment in application_status(application).deployment_statuses:
        if "Traceback" in deployment.message:
            lines = [line for line in deployment.message.splitlines() if line.strip()]
            failures.append(f"{deployment.name}: {lines[-1].strip()}")
    return failures


def refusals(application: str) -> list[str]:
    """Return those of deployment_failures in which a replica refused its configuration."""
    refused = f": {ConfigError.__module__}.{ConfigError.__qualname__}: "
    return [failure for failure in deployment_failures(application) if refused in failure]


def _core_worker() -> Any:
    from ray._private import worker

    connected: Any = worker.global_worker
    return connected.core_worker


def object_content(ref: Any) -> bytes:
    """Return what fetch_bytes needs of an object that this process owns: its id and address."""
    _, owner, _ = _core_worker().serialize_object_ref(ref)
    content: bytes = ref.binary() + owner
    return content


def fetch_bytes(content: bytes, size: int, timeout_s: float) -> bytes:
    """Return an object's bytes; raise TensorLost if it is gone, late or not `size` raw bytes.

    `ray.get` would unpickle whatever is marked as pickled, errors included: so the
    object is read as it is stored, and only raw bytes are taken. content must be object_content's.
    """
    import ray
    from ray._private import ray_constants

    core, make_ref = _core_worker(), cast("Any", ray.ObjectRef)
    id_size = ray.ObjectRef.size()
    try:
        ref = make_ref(content[:id_size], content[id_size:])
        # Keeps it while it is read, although its owner may free it.
        core.deserialize_and_register_object_ref(
            ref.binary(), ray.ObjectRef.nil(), content[id_size:], b""
        )
        [(data, metadata, _)] = core.get_objects([ref], int(1000 * timeout_s))
    except (ray.exceptions.RayError, ValueError) as error:
        raise TensorLost(f"the object store has lost a tensor: {type(error).__name__}") from None
    if metadata != ray_constants.OBJECT_METADATA_TYPE_RAW or data is None or data.size != size:
        raise TensorLost("the object store has lost a tensor")
    found: bytes = data.to_pybytes()
    return found


async def choose_address(handle: DeploymentHandle[Any], timeout_s: float = 2.0) -> str:
    """Return the gRPC address of a replica that Serve picks, out of what it knows, at random.

    Nothing is reserved on the replica: one that stalls would keep the caller for seconds. So it may
    be one that is gone. The call runs in an empty context: inside a request, Serve indexes pending
    calls by the parent's request id and concurrent ones would wait for each other for ever. Raises
    Unavailable when no replica is running within timeout_s.
    """
    from ray.serve.exceptions import DeploymentUnavailableError

    async def choose() -> Mapping[str, Any]:
        # Serve's own ingress passes _reserve so.
        async with handle.describe.choose_replica(_reserve=False) as selection:
            return dict(selection.replica_metadata or {})

    task = asyncio.get_running_loop().create_task(choose(), context=contextvars.Context())
    try:
        async with asyncio.timeout(timeout_s):
            metadata = await task
    except (TimeoutError, DeploymentUnavailableError):
        raise Unavailable("no replica is running") from None
    if "grpc" not in metadata:
        raise Unavailable("the replica is still starting")
    return str(metadata["grpc"])


def own_config() -> Any:
    """Return what this replica was deployed with as its user_config; call it inside one.

    Serve hands it to `reconfigure` once the replica is made, and needs it made to do so.
    """
    from ray.serve.context import _get_internal_replica_context

    context = _get_internal_replica_context()
    assert context is not None
    return context._deployment_config.user_config


async def is_running(handle: DeploymentHandle[Any]) -> bool:
    """Return whether a deployment, which is to have replicas, has one that runs."""
    try:
        await choose_address(handle, _RUNNING_S)
    except Unavailable:
        return False
    return True


async def stopping() -> None:
    """Return when Serve stops this replica; only its own servers learn of it, and at the end."""
    while not _is_stopping():  # noqa: ASYNC110 - Serve has no event for it
        await asyncio.sleep(_LOOK_S)


def _is_stopping() -> bool:
    from ray._private import worker

    actor: Any = worker.global_worker.actors[_core_worker().get_actor_id()]
    return bool(actor._replica_impl._shutting_down)


def application_name() -> str:
    """Return the name of the application that this replica is a part of."""
    from ray import serve

    return serve.get_replica_context().app_name


def deploy_file(values: dict[str, Any]) -> None:
    """Deploy a Serve config file's values beside what other files deployed; returns before it runs.

    serve.run takes no application-level autoscaling policy. Serve deletes what a new file lacks:
    so it gets the other applications again, as they are.
    """
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    client = _get_global_client()
    assert client is not None
    own = {application["name"] for application in values["applications"]}
    others = [each for name, each in deployed_applications().items() if name not in own]
    values = values | {"applications": [*others, *values["applications"]]}
    client.deploy_apps(ServeDeploySchema.model_validate(values))


def deployed_applications() -> dict[str, dict[str, Any]]:
    """Return the applications that were deployed from files, as those had them, by name."""
    from ray.serve.context import _get_global_client

    client = _get_global_client()
    assert client is not None
    found: dict[str, dict[str, Any]] = client.get_serve_details()["applications"]
    configs = {name: each["deployed_app_config"] for name, each in found.items()}
    return {name: config for name, config in configs.items() if config}


def is_starting(application: str) -> bool:
    """Return whether an application has neither begun to run nor failed."""
    from ray.serve.schema import ApplicationStatus

    starting = {ApplicationStatus.NOT_STARTED, ApplicationStatus.DEPLOYING}
    return application_status(application).app_status.status in starting


def require_running(application: str) -> None:
    """Raise Unavailable, with the reasons, unless an application runs as it was deployed."""
    found = application_status(application).app_status
    if found.status != "RUNNING":
        reasons = deployment_failures(application) or [found.message or str(found.status)]
        raise Unavailable("; ".join(reasons))
