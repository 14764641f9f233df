"""A service's engine as a Serve replica: Serve places it, sessions reach it by gRPC."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from importlib import import_module
from typing import Any

import ray

from denoiser_service.config import DenoiserConfig
from deployments.observability.export import export_stats
from deployments.serve.environment import pin, prepare_replica
from deployments.serve.memory import introduce_drafter, is_introduced, session_token
from deployments.serve.parts import DenoiserReplica, DrafterReplica, VerifierReplica
from deployments.serve.platform.replicas import own_config
from deployments.serve.ranks import RayRanks
from deployments.serve.tensors import ObjectStore
from drafter_service.client import DrafterClient
from foredraft.memory import freeze_heap
from foredraft.rpc.token import token_in
from foredraft.rpc.transport import Role, transport_of
from foredraft.strict import parse
from foredraft.types import ModelInfo
from verifier_service.config import VerifierConfig

log = logging.getLogger(__name__)


_KINDS: dict[str, type[DenoiserReplica | DrafterReplica | VerifierReplica]] = {
    "denoiser_service": DenoiserReplica,
    "drafter_service": DrafterReplica,
    "verifier_service": VerifierReplica,
}


class ModelServiceReplica:
    """Runs one service's gRPC server in a replica's event loop.

    package is "denoiser_service", "drafter_service" or "verifier_service".
    """

    async def __init__(self, package: str) -> None:  # type: ignore[misc]  # Serve awaits it
        # Imported by name and here: the process that builds the application must not load torch.
        server = import_module(f"{package}.server")
        self._kind = _KINDS[package]
        given = parse(self._kind, own_config())
        prepare_replica()
        pin(given.pin_cpus)
        # One interface only: the address that the cluster knows this node by.
        self._host = ray.util.get_node_ip_address()
        self._drain_s = given.drain_s
        config = given.service.model_copy(update={"host": self._host})
        self._tensors = carrier = ObjectStore(given.tensors)
        token = token_in(config.token_file) or session_token()
        parts: dict[str, Any] = {"token": token}
        if not isinstance(config, DenoiserConfig):
            parts["carrier"] = carrier
        if isinstance(config, VerifierConfig):
            transport = transport_of(config.mtls, Role.VERIFIER)
            parts["connect"] = partial(
                DrafterClient, carrier=carrier, link=given.link, transport=transport, token=token
            )
            parts["permits"] = is_introduced
            if config.tensor_parallel > 1:
                parts["start_ranks"] = RayRanks
        self._server = await server.serve(config, **parts)
        if package == "drafter_service":
            introduce_drafter(self.record_replica_metadata()["grpc"])
        freeze_heap()
        self._watch = asyncio.create_task(self._exit_when_broken())
        self._export = asyncio.create_task(export_stats(package, self._server.stats))

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Take over what needs no new process; Serve calls this at the start, too."""
        self._drain_s = parse(self._kind, user_config).drain_s

    def describe(self) -> None:
        """Exists to be routed to: choosing a replica for it chooses the session's home."""

    def record_replica_metadata(self) -> dict[str, Any]:
        """Serve asks once, when the replica is ready; sessions connect to the address."""
        return {"grpc": f"{self._host}:{self._server.port}"}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What Serve cannot see, because sessions bypass it."""
        return {**self._server.stats(), **self._tensors.stats()}

    def info(self) -> ModelInfo:
        """The model, with its measured numerics."""
        info: ModelInfo = self._server.info
        return info

    def status(self) -> tuple[ModelInfo, dict[str, float]]:
        """The model and the load, for /health."""
        return self.info(), self.record_autoscaling_stats()

    def die(self) -> None:
        """End the process as a crash would: the playground's button, where it is allowed."""
        log.error("the replica is killed on request")
        os._exit(1)

    async def _exit_when_broken(self) -> None:
        """End the process once its engine or a rank is lost.

        Its sessions move at once then, and Serve replaces it sooner than failed checks would.
        """
        log.error("the replica ends: %s", await self._server.broken())
        os._exit(1)

    async def check_health(self) -> None:
        """Raise when the engine's worker has died, so that Serve replaces the replica."""
        self._server.check_health()

    async def __del__(self) -> None:
        """Serve awaits this when the replica stops: sessions are asked to move, then cut."""
        self._watch.cancel()
        self._export.cancel()
        await self._server.drain(self._drain_s)
        await self._server.stop()
