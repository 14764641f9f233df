"""Makes replicas: the services' own engines over simulated models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy

from drafter_service.batcher import Proposals
from drafter_service.engine import DrafterEngine
from foredraft.messages import DraftOpen
from foredraft.pacing.pacer import SteppedClock
from foredraft_simulator.acceptance.drawn import Acceptance
from foredraft_simulator.models.drafter import SimulatedDrafter, SimulatedStrategy, capabilities
from foredraft_simulator.models.target import SimulatedTarget, chosen
from foredraft_simulator.models.texts import INFO
from foredraft_simulator.scenario.pools import DrafterPoolConfig, VerifierPoolConfig
from foredraft_simulator.services.drafters import DrafterReplica
from foredraft_simulator.services.link import Host
from foredraft_simulator.services.verifiers import VerifierReplica
from foredraft_simulator.virtual.clock import EngineClock
from foredraft_simulator.virtual.engine import VirtualEngine
from verifier_service.drafters import Connect, Drafters
from verifier_service.kv.block_pool import BlockPool
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.measured_costs import measure_costs
from verifier_service.runner import Rounds
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Priced
from verifier_service.targets.engine import VerifierEngine

# Lets a computation take so many seconds.
Spend = Callable[[float], None]


class DrafterMaker:
    """Makes drafters; drafted counts the tokens of all their drafts.

    prompt_lens are the lengths of the requests' prompts, by number.
    """

    def __init__(
        self, config: DrafterPoolConfig, acceptance: Acceptance, prompt_lens: Sequence[int]
    ) -> None:
        self._config, self._acceptance, self._prompt_lens = config, acceptance, prompt_lens
        self._capabilities = capabilities(config.slots, config.max_sessions, config.branch_slots)
        self.drafted = 0

    def __call__(self, address: str) -> DrafterReplica:
        """Return a drafter at an address."""
        clock = EngineClock(asyncio.get_running_loop().time)
        proposals = Proposals(self.engine(clock.spend), clock.now)
        virtual = VirtualEngine("drafter", proposals, clock, self._config.host_s)
        host = Host(self._config.message_s)
        return DrafterReplica(address, virtual, host, self._config.max_queue)

    def engine(self, spend: Spend) -> DrafterEngine:
        """Return a drafter's engine, whose passes spend their time."""
        config = self._config
        model = SimulatedDrafter(self._capabilities, config.pass_s, spend)
        return DrafterEngine(
            model, self._strategy_of, INFO, config.max_sessions, config.prefill_rows
        )

    def _strategy_of(self, request: DraftOpen) -> SimulatedStrategy:
        number = int(request.session_id)
        return SimulatedStrategy(
            number,
            self._prompt_lens[number],
            self._acceptance,
            self._config,
            request.num_guesses,
            self._count,
        )

    def _count(self, tokens: int) -> None:
        self.drafted += tokens


class VerifierMaker:
    """Makes verifiers; connect has a verifier's host connect to drafters."""

    def __init__(self, config: VerifierPoolConfig, connect: Callable[[Host], Connect]) -> None:
        self._config, self._connect = config, connect
        self._costs = _costs(config)

    def __call__(self, address: str) -> VerifierReplica:
        """Return a verifier at an address."""
        config = self._config
        clock = EngineClock(asyncio.get_running_loop().time)
        rounds = Rounds(self.engine(clock.now, clock.spend))
        virtual = VirtualEngine("verifier", rounds, clock, config.host_s)
        host = Host(config.message_s)
        drafters = Drafters(self._connect(host) if config.leads_rounds else None)
        return VerifierReplica(address, virtual, host, drafters)

    def engine(self, clock: Callable[[], float], spend: Spend) -> VerifierEngine:
        """Return a verifier's engine, whose passes spend their time on a clock."""
        config = self._config
        pool = _block_pool(config)
        return VerifierEngine(
            SimulatedTarget(pool, config.block_tokens, config.pass_s, spend),
            KvBlocks(
                pool,
                block_tokens=config.block_tokens,
                max_sessions=config.max_sessions,
                overcommit=config.kv_overcommit,
            ),
            row_budget=config.row_budget,
            prefill_rows=config.prefill_rows,
            choice=chosen,
            pricing=Priced(deepcopy(self._costs)),
            clock=clock,
        )


def _costs(config: VerifierPoolConfig) -> PassCosts:
    """Return what a verifier measures of its passes when it starts."""
    clock, pool = SteppedClock(), _block_pool(config)
    model = SimulatedTarget(pool, config.block_tokens, config.pass_s, clock.sleep)
    return measure_costs(model, chosen, config.row_budget, clock.now)


def _block_pool(config: VerifierPoolConfig) -> BlockPool:
    size = config.block_tokens
    return BlockPool(config.kv_tokens // size, config.prefix_cache_tokens // size)
