"""What can be known of a configuration's folders before anything is started."""

from __future__ import annotations

from pathlib import Path

from deployments.config import ForedraftConfig
from foredraft.errors import ConfigError
from foredraft.model_files import sha256, tokenizer_hash
from foredraft.rpc.transport import Role, transport_of


def check_models(config: ForedraftConfig) -> None:
    """Raise ConfigError naming the first key whose folder cannot be used, and the folder.

    The configuration's paths are absolute.
    """
    verifier, drafter, denoiser = config.verifier.service, config.drafter.service, config.denoiser
    folders = {
        "verifier.service.model": verifier.model,
        "verifier.service.features.model": verifier.features.model if verifier.features else None,
        "drafter.service.model": drafter.model,
        "drafter.service.target": drafter.target,
        "denoiser.service.model": denoiser.service.model if denoiser else None,
    }
    if (canary := config.drafter.canary) is not None:
        folders["drafter.canary.service.model"] = canary.service.model
        folders["drafter.canary.service.target"] = canary.service.target
    for key, folder in folders.items():
        if folder is not None:
            _check_folder(key, folder)
    check_tokenizer(config.tokenizer_file, tokenizer_hash(verifier.model), str(verifier.model))
    roles = [Role.ORCHESTRATOR, Role.VERIFIER, Role.DRAFTER]
    if denoiser is not None:
        roles.append(Role.DENOISER)
        model = denoiser.service.model
        check_tokenizer(denoiser.tokenizer_file, tokenizer_hash(model), str(model))
    for role in roles:
        transport_of(config.mtls, role)


def check_tokenizer(tokenizer: Path, expected: str, target: str) -> None:
    """Raise ConfigError unless the file has the hash of the target's tokenizer, if it has one."""
    if expected and sha256(tokenizer) != expected:
        raise ConfigError(
            f"tokenizer: {tokenizer} is not the tokenizer of the target {target}", param="tokenizer"
        )


def _check_folder(key: str, folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{key}: there is no model folder {folder}", param=key)
    for pattern in ("config.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise ConfigError(f"{key}: the model folder {folder} has no {pattern}", param=key)
