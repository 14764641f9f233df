"""The configuration of a target and a drafter that are given as folders, without a file."""

from __future__ import annotations

import json
from pathlib import Path

from deployments.config import ApplicationEntry, ForedraftConfig, ServeFile, located
from deployments.ingress.direct.config import DirectConfig
from deployments.pools import DrafterPool, IngressConfig, VerifierPool
from drafter_service.config import DrafterConfig
from foredraft.errors import ConfigError
from foredraft.model_files import sha256, tokenizer_file
from foredraft.types import Proposal
from orchestrator.config import NgramConfig, OrchestratorConfig
from orchestrator.length.config import GoodputConfig
from verifier_service.config import FeaturesConfig, VerifierConfig

# Where drafts are made ahead by the verifier: the way through the orchestrator takes longer.
_LED_ROUNDS = 16


def served_pair(
    model: Path, drafter: Path, direct: DirectConfig, device: str, cpus: int
) -> ServeFile:
    """Return what serves a target, a folder or GGUF file, with a drafter's folder.

    Drafts are trees behind the text's own n-grams, as long as they pay. A drafter that needs its
    target's embedding, features or tokenizer is given them. A device "cuda" is one GPU for each;
    on CPUs a pass has so many threads. Raise ConfigError naming what cannot be used.
    """
    gpus = 1.0 if device == "cuda" else 0.0
    reading = FeaturesConfig(model=drafter) if _reads_features(drafter) else None
    config = located(
        ForedraftConfig(
            ingress=IngressConfig(direct=direct),
            orchestrator=OrchestratorConfig(
                proposal=Proposal.TREE,
                ngram=NgramConfig(enabled=True),
                adl=GoodputConfig(),
                verifier_led_rounds=_LED_ROUNDS,
            ),
            drafter=DrafterPool(
                num_gpus=gpus, service=DrafterConfig(model=drafter, target=model, device=device)
            ),
            verifier=VerifierPool(
                num_gpus=gpus,
                service=VerifierConfig(model=model, device=device, threads=cpus, features=reading),
            ),
        )
    )
    entry = ApplicationEntry(args=_translated(config))
    return ServeFile(proxy_location="Disabled", applications=[entry])


def _reads_features(drafter: Path) -> bool:
    path = drafter / "config.json"
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ConfigError(
            f"drafter: {drafter} has no readable config.json", param="drafter"
        ) from None
    return bool(raw.get("target_layer_ids") or "dflash_config" in raw)


def _translated(config: ForedraftConfig) -> ForedraftConfig:
    """Return the configuration with the target's tokenizer for a drafter that has another one."""
    service = config.drafter.service
    own, target = tokenizer_file(service.model), config.tokenizer_file
    if own is None or sha256(own) == sha256(target):
        return config
    translating = service.model_copy(update={"target_tokenizer": target, "target": None})
    drafters = config.drafter.model_copy(update={"service": translating})
    return config.model_copy(update={"drafter": drafters})
