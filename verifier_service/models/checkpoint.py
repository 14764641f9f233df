"""What is checked about a model directory before its weights are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig

from foredraft.errors import WeightsError
from foredraft.limits import MAX_BLOCK_LENGTH
from foredraft.model_files import eos_token_ids, expand_compressed, tokenizer_hash, weights_hash
from foredraft.types import ModelInfo

if TYPE_CHECKING:
    from verifier_service.config import VerifierConfig

# These rotary embeddings change with the longest sequence of a batch, so neighbours would show.
_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")
# Kinds of layers; without a list of them every one has the window, if there is one.
_SLIDING, _FULL = "sliding_attention", "full_attention"


def load_config(path: Path) -> Any:
    """Return the transformers configuration of a decoder-only model; raise WeightsError if none.

    Weights that are stored compressed (compressed-tensors: int8 rows and the like) are expanded to
    the model's dtype as they are loaded.
    """
    if not (path / "config.json").is_file():
        raise WeightsError("the model directory has no config.json")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"the model's config.json cannot be used: {error}") from None
    if getattr(config, "is_encoder_decoder", False):
        raise WeightsError("the target must be decoder-only; this is an encoder-decoder model")
    if not list(path.glob("*.safetensors")):
        raise WeightsError("the model directory has no safetensors files")
    expand_compressed(config)
    return config


def describe(
    config: VerifierConfig, checkpoint: Any, features_hash: str = "", features_width: int = 0
) -> ModelInfo:
    """Return a target's description by its transformers configuration; numerics are unmeasured."""
    vocab_size = checkpoint.get_text_config().vocab_size
    return ModelInfo(
        vocab_size=vocab_size,
        max_len=longest_text(checkpoint),
        tokenizer_hash=tokenizer_hash(config.model),
        numerics="unmeasured",
        name=config.name or config.model.name,
        weights_hash=weights_hash(config.model, f"{config.dtype} {config.quantization}"),
        features_hash=features_hash,
        features_width=features_width,
        eos_token_ids=tuple(i for i in eos_token_ids(config.model) if i < vocab_size),
        **_any_subset(checkpoint, vocab_size),
        **_block_diffusion(checkpoint, vocab_size),
    )


def _any_subset(checkpoint: Any, vocab_size: int) -> dict[str, Any]:
    """Return what an any-subset model's configuration adds to its description.

    It is a decoder's with "any_subset": {"mask_token_id": the token of its query rows}.
    """
    found = getattr(checkpoint, "any_subset", None)
    if found is None:
        return {}
    token = found.get("mask_token_id") if isinstance(found, dict) else None
    if type(token) is not int or not 0 <= token < vocab_size:
        raise WeightsError("any_subset in config.json must have a mask_token_id of the vocabulary")
    if windows(checkpoint):
        raise WeightsError("an any-subset model's layers must see the whole text")
    return {"mask_token_id": token, "any_subset": True}


def _block_diffusion(checkpoint: Any, vocab_size: int) -> dict[str, Any]:
    """Return what a block-diffusion model's configuration adds to its description.

    It is a decoder's with "block_diffusion": {"block_length": L, "mask_token_id": of masked slots}.
    """
    found = getattr(checkpoint, "block_diffusion", None)
    if found is None:
        return {}
    fields = found if isinstance(found, dict) else {}
    length, token = fields.get("block_length"), fields.get("mask_token_id")
    if type(token) is not int or not 0 <= token < vocab_size:
        raise WeightsError(
            "block_diffusion in config.json must have a mask_token_id of the vocabulary"
        )
    longest = min(MAX_BLOCK_LENGTH, longest_text(checkpoint))
    if type(length) is not int or not 1 <= length <= longest:
        raise WeightsError(
            f"block_diffusion in config.json must have a block_length of 1 to {longest}"
        )
    if windows(checkpoint):
        raise WeightsError("a block-diffusion model's layers must see the whole text")
    return {"mask_token_id": token, "block_length": length}


def longest_text(config: Any) -> int:
    """Return how many tokens the model holds."""
    text = config.get_text_config()
    length = getattr(text, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 2:
        raise WeightsError("the model's config.json states no max_position_embeddings")
    if getattr(text, "attn_logit_softcapping", None):
        raise WeightsError("attention with soft-capped logits is not supported")
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") in _LENGTH_DEPENDENT_ROPE:
        length = min(length, rope.get("original_max_position_embeddings") or length)
    return length


def windows(config: Any) -> tuple[int | None, ...]:
    """Return how many tokens, itself included, a token of each layer sees, None for all.

    Empty where every layer sees any text whole. Raise WeightsError for layers of another kind.
    """
    text = config.get_text_config()
    window = getattr(text, "sliding_window", None)
    if not getattr(text, "use_sliding_window", True):
        window = None
    kinds = getattr(text, "layer_types", None) or [_SLIDING] * text.num_hidden_layers
    unknown = sorted(set(kinds) - {_SLIDING, _FULL})
    if unknown:
        raise WeightsError(f"layers of type {unknown[0]} are not supported")
    if not isinstance(window, int) or window >= longest_text(config) or _SLIDING not in kinds:
        return ()
    return tuple(window if kind == _SLIDING else None for kind in kinds)
