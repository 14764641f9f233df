"""From a configuration to a running engine: weights, measured numerics, the draft graph."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable

from denoiser_service.compiled_drafting import best_drafting
from denoiser_service.compiled_draws import best_draws
from denoiser_service.config import DenoiserConfig
from denoiser_service.core.graph import DraftGraph
from denoiser_service.core.graph_file import FILE_NAME, from_json
from denoiser_service.core.port import MakeDrafting
from denoiser_service.engine import DenoiserEngine
from foredraft.errors import ConfigError
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_target, prepare_threads
from verifier_service.models import numerics
from verifier_service.models.compiled.sampling import best_choice
from verifier_service.models.paced import measured as with_pace
from verifier_service.models.paged import warm_up
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Priced, Pricing

log = logging.getLogger(__name__)


def load_engine(
    config: DenoiserConfig,
    priced: Callable[[PassCosts], Pricing] = Priced,
    drafting: Callable[[DraftGraph], MakeDrafting] = best_drafting,
) -> DenoiserEngine:
    """Return the engine, loaded and measured; call it in the thread that will run it.

    priced makes what buys drafts of what the model's passes cost, drafting what makes them of the
    graph. Raise WeightsError or ConfigError.
    """
    if config.recording is not None:
        raise ConfigError("a denoiser plays no recording back", param="recording")
    started = time.monotonic()
    target = config.target()
    prepare_threads(target)
    model = load_target(target)
    if not model.info.block_length:
        raise ConfigError("the model is no block-diffusion model", param="model")
    graph = load_graph(config)
    measured = numerics.measure(model)
    if config.numerics == "exact":
        numerics.require_exact(measured, dtype=config.dtype)
    warm_up(model, model.batches(min(config.row_budget, model.info.max_len)))
    model.info = dataclasses.replace(model.info, numerics=measured)
    kv = KvBlocks(
        model.pool,
        block_tokens=config.block_tokens,
        max_sessions=config.max_sessions,
        share_factor=config.kv_share_factor,
    )
    choice = best_choice()
    paced, costs = with_pace(model, config.pace, choice, config.row_budget)
    engine = DenoiserEngine(
        paced,
        kv,
        drafting(graph),
        row_budget=config.row_budget,
        prefill_rows=config.prefill_rows,
        most_drafts=config.most_drafts,
        useful_drafts=len(graph.nodes),
        draws=best_draws(),
        pricing=priced(costs),
    )
    log.info(
        "target %s ready in %.1f s: blocks of %d, %s on %s, numerics %s",
        model.info.name,
        time.monotonic() - started,
        model.info.block_length,
        config.dtype,
        config.device,
        measured,
    )
    return engine


def load_graph(config: DenoiserConfig) -> DraftGraph:
    """Return the graph beside the weights, or one without nodes, which drafts nothing.

    Raise ConfigError for a file that is no graph.
    """
    file = config.model / FILE_NAME
    if not file.is_file():
        log.info("no %s: nothing is drafted", FILE_NAME)
        return DraftGraph(())
    graph, _, name = from_json(file.read_text())
    log.info("draft graph of %d nodes, %s", len(graph.nodes), name[:12])
    return graph
