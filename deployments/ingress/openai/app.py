"""The HTTP ingress as a Serve deployment: the OpenAI API over the orchestrator."""

# Serve pickles the decorated class by value at once: annotations must not be postponed, and what
# its methods use must be defined above it or imported.

import asyncio
import time
import uuid
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle
from tokenizers import Tokenizer

from denoiser_service.client import DenoiserClient
from deployments.canary.routing import Place, Routing
from deployments.config import ForedraftConfig
from deployments.denoiser_pool import DenoiserPool
from deployments.ingress.denoised import DenoisedGenerations, denoised
from deployments.ingress.direct.places import Places
from deployments.ingress.direct.server import DirectServer
from deployments.ingress.doors import install as doors
from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.keys import read_keys
from deployments.ingress.generations import Generations
from deployments.ingress.openai.routes import application, handlers
from deployments.ingress.playground import routes as playground
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig
from deployments.ingress.rpc.server import RpcServer
from deployments.observability import scrape
from deployments.observability.collector import provider_of
from deployments.observability.export import Export
from deployments.observability.metrics import INGRESS
from deployments.observability.requests import Counting, RequestMetrics, both
from deployments.observability.scrape import Scrape
from deployments.observability.tracing import TraceParent, Traces
from deployments.pools import DrafterPool, IngressConfig, VerifierPool
from deployments.preflight import check_tokenizer
from deployments.serve.deploying import settle
from deployments.serve.environment import pin, prepare_replica
from deployments.serve.memory import ClusterMemory, session_token
from deployments.serve.parts import QUIET_S
from deployments.serve.platform.replicas import (
    application_name,
    choose_address,
    is_running,
    own_config,
    stopping,
)
from deployments.serve.routing import PinnedReplicas
from drafter_service.client import DrafterClient
from foredraft.memory import freeze_heap
from foredraft.rpc.token import token_in
from foredraft.rpc.transport import Role, transport_of
from foredraft.strict import parse
from foredraft.types import ModelInfo
from orchestrator.session.compatibility import why_incompatible
from verifier_service.client import VerifierClient

_STATUS_TIMEOUT_S = 2.0


@serve.ingress()
class Ingress:
    """Serves the routes in a replica; its target is whatever the verifiers serve at its start."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        drafters: DeploymentHandle,
        canaries: DeploymentHandle,
        verifiers: DeploymentHandle,
        denoisers: DeploymentHandle | None = None,
    ) -> None:
        config = parse(ForedraftConfig, own_config())
        prepare_replica()
        pin(config.ingress.pin_cpus)
        self._instance = uuid.uuid4().hex
        self._handles = {"drafter": drafters, "verifier": verifiers}
        target: ModelInfo = await verifiers.info.remote()
        check_tokenizer(config.tokenizer_file, target.tokenizer_hash, target.name)
        keys_file = config.ingress.keys_file
        keys = () if keys_file is None else read_keys(keys_file)
        self._admission = Admission(keys, time.monotonic)
        self._origins = config.ingress.cors_origins
        self._playground = config.ingress.playground
        self._scrape = Scrape(INGRESS)
        self._drain_s = config.ingress.drain_s
        sinks = (self._scrape, Export(INGRESS))
        self._metrics = RequestMetrics(config.ingress.acceptance, sinks)
        self._provider = provider_of(config.ingress.tracing)
        ended: Counting = self._metrics.ended
        if self._provider is not None:
            ended = both(ended, Traces(config.name, self._provider).ended)
        application = application_name()
        transport = transport_of(config.mtls, Role.ORCHESTRATOR)
        drafting = partial(DrafterClient, transport=transport, **_dialling(config.drafter))
        self._routing = Routing(
            PinnedReplicas(partial(choose_address, drafters), drafting),
            PinnedReplicas(partial(choose_address, canaries), drafting),
            partial(is_running, canaries),
            partial(settle, application),
            Place(application, self._instance, ClusterMemory(), sinks),
        )
        self._generations = Generations(
            config.name,
            target,
            Tokenizer.from_file(str(config.tokenizer_file)),
            config.orchestrator,
            self._routing.arms,
            PinnedReplicas(
                partial(choose_address, verifiers),
                partial(VerifierClient, transport=transport, **_dialling(config.verifier)),
            ),
            ended,
        )
        # A second target, where one is configured.
        self._denoised: DenoisedGenerations | None = None
        if denoisers is not None and config.denoiser is not None:
            self._handles["denoiser"] = denoisers
            dialled = partial(DenoiserClient, transport=transport, **_dialling(config.denoiser))
            self._denoised = denoised(
                config.denoiser,
                await denoisers.info.remote(),
                PinnedReplicas(partial(choose_address, denoisers), dialled),
                self._generations,
                ended,
            )
        others = () if self._denoised is None else (self._denoised,)
        self._handlers = handlers(self._generations, config.tokenizer_file, others)
        self._app = self._made()
        freeze_heap()
        self._rpc = await self._listen(config.ingress.grpc)
        self._direct = await self._listen_directly(config.ingress)
        self._leaving = asyncio.create_task(self._leave())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the app, once the replica is made."""
        return self._app

    def _made(self) -> FastAPI:
        app = application(self._handlers, self._health)
        if self._provider is not None:
            app.add_middleware(TraceParent)
        scrape.install(app, self._scrape)
        chat, completions = self._handlers.chat, self._handlers.completions
        playground.install(
            app, self._playground, chat.converses, completions.fills, self._kill_drafter
        )
        doors.install(app, self._admission, self._origins)
        return app

    def instance(self) -> str:
        """Return what /health calls this replica, so that one can know whose answer that is."""
        return self._instance

    def under_way(self) -> int:
        """Return how many requests this replica has under way."""
        return self._generations.stopping.under_way

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Take over what needs no new process; Serve calls this at the start, too."""
        config = parse(ForedraftConfig, user_config)
        self._generations.config = config.orchestrator
        self._routing.follow(config.drafter)
        self._generations.arms = self._routing.arms
        if self._denoised is not None:
            self._denoised.config = config.orchestrator
        self._metrics.watch(config.ingress.acceptance)
        self._drain_s = config.ingress.drain_s

    async def drain(self, grace_s: float) -> None:
        """Take no new requests; return when those under way have ended, at the latest then."""
        if self._rpc is not None:
            await self._rpc.leave()
        await self._generations.stopping.drain(grace_s)
        for door in (self._rpc, self._direct):
            if door is not None:
                await door.stop()
        if self._provider is not None:
            await asyncio.to_thread(self._provider.shutdown)

    async def _leave(self) -> None:
        """Leave to the ingress that takes over: not ready first, then without new connections."""
        await stopping()
        if not self._generations.stopping.ready:
            return  # drained already
        self._generations.stopping.ready = False
        until = time.monotonic() + self._drain_s
        if self._rpc is not None:
            await self._rpc.leave()
            await self._rpc.hand_over(self._drain_s + QUIET_S)
        if self._direct is not None:
            await self._direct.hand_over(QUIET_S, self._drain_s)
        await self.drain(max(0.0, until - time.monotonic()))

    async def __del__(self) -> None:
        """Serve awaits this when the replica stops and none of its own requests is under way."""
        await self._leaving

    async def _listen(self, config: RpcConfig | None) -> RpcServer | None:
        if config is None:
            return None
        calls = Calls(self._handlers, self._admission, config.max_streams)
        server = RpcServer(calls, config)
        await server.start()
        return server

    async def _listen_directly(self, config: IngressConfig) -> DirectServer | None:
        if config.direct is None:
            return None
        places = Places(
            config.max_ongoing_requests, config.max_queued_requests, config.queue_timeout_s
        )
        server = DirectServer(self._app, config.direct, places)
        await server.start()
        return server

    async def _kill_drafter(self) -> None:
        with suppress(RayActorError):
            await self._handles["drafter"].die.remote()

    async def _health(self) -> dict[str, Any] | None:
        self._generations.stopping.check_ready()
        verifier, drafter = await asyncio.gather(self._status("verifier"), self._status("drafter"))
        if verifier is None:
            return None
        refusal = drafter and why_incompatible(drafter[0], verifier[0])
        described = {
            "instance": self._instance,
            "verifier": _described(*verifier),
            "drafter": drafter and _described(*drafter) | {"refused": refusal},
        }
        if self._denoised is not None:
            denoiser = await self._status("denoiser")
            described["denoiser"] = denoiser and _described(*denoiser)
        return described

    async def _status(self, service: str) -> tuple[ModelInfo, dict[str, float]] | None:
        call = self._handles[service].status.remote()
        try:
            found: tuple[ModelInfo, dict[str, float]] = await asyncio.wait_for(
                call, _STATUS_TIMEOUT_S
            )
        except Exception:  # noqa: BLE001 - whatever Ray raises, the replica cannot answer
            return None
        return found


def _dialling(pool: DenoiserPool | DrafterPool | VerifierPool) -> dict[str, Any]:
    """Return how a pool's replicas are called."""
    return {"link": pool.link, "token": token_in(pool.service.token_file) or session_token()}


def _described(model: ModelInfo, stats: dict[str, float]) -> dict[str, Any]:
    return {"model": model.name, "numerics": model.numerics, **stats}
