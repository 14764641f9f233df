"""DiffusionGemma behind the DiffusionLM port: transformers' own model, text alone.

A causal encoder writes the prefix's keys and values; a decoder that sees them and all of its canvas
predicts every token of the canvas, which begins as uniformly random tokens. There is no mask token
and no shift. A block's slots are the first of the canvas, the rest of it stays noise: the model
knows canvases of one length only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from drafter_service.models.candidates import block_scores
from drafter_service.models.families.prefix_kv import PrefixKV, Rows
from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.proposals.lattice import BlockScores
from foredraft.noise.streams import uniform

# Any constant does: a request must be drafted for alike wherever and whenever it comes.
_NOISE_SEED = 0
_ONLY: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True, slots=True)
class _Denoised:
    """A pass's last states [canvas, hidden] of a block of num_slots slots behind `end` tokens."""

    end: int
    num_slots: int
    states: Tensor


class DiffusionGemmaDrafter:
    """Runs many sessions' new tokens through the encoder, then their canvases through the decoder.

    max_mask_slots is the most slots of a block; max_len the most tokens of a session, slots
    included; cache_tokens bounds the cached tokens of all sessions together.
    """

    def __init__(
        self, model: Any, num_candidates: int, max_mask_slots: int, max_len: int, cache_tokens: int
    ) -> None:
        self._model, text = model, model.config.text_config
        self._window, self._canvas = text.sliding_window, model.config.canvas_length
        self._count = min(num_candidates, text.vocab_size)
        eos = text.eos_token_id
        tokens = min(max_len, cache_tokens, text.max_position_embeddings)
        self.capabilities = Capabilities(
            name=model.config.model_type,
            vocab_size=text.vocab_size,
            max_len=tokens,
            eos=eos[0] if isinstance(eos, list) else eos,
            max_mask_slots=min(max_mask_slots, self._canvas),
            prefix_kv="exact",
            cache_slots=cache_tokens // tokens,
            cache_tokens=tokens,
            partial_blocks=True,
        )
        layers = model.model.encoder.language_model.layers
        self._prefixes = PrefixKV(layers, self.capabilities.cache_slots, tokens)
        self._denoised: dict[int, _Denoised] = {}

    @torch.inference_mode()
    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's slots (see DiffusionLM.draft)."""
        logits, eos = self.logits(requests), self.capabilities.eos
        return block_scores(logits, requests, self._count, None, eos)

    def logits(self, requests: Sequence[BlockRequest]) -> Tensor:
        """Return the logits [slots, vocabulary] of every request's slots, in single precision."""
        rows = Rows.of(requests, self._model.device)
        cache = self._prefixes.read(requests)
        self._model.model.encoder(
            input_ids=rows.tokens,
            attention_mask=rows.causal(self._window),
            position_ids=rows.positions,
            past_key_values=cache,
        )
        self._prefixes.write(requests, cache)
        blocks = [r.num_slots for r in requests]
        if not any(blocks):
            return torch.empty(0, self.capabilities.vocab_size)
        states = self._decoded(requests, rows, cache)
        read = torch.cat([canvas[:count] for canvas, count in zip(states, blocks, strict=True)])
        return self._head(read)

    def _decoded(self, requests: Sequence[BlockRequest], rows: Rows, cache: Any) -> Tensor:
        """Return the states [requests, canvas, hidden] of a pass over their canvases."""
        offsets = torch.arange(self._canvas, device=rows.ends.device)
        before = [self._before(r) for r in requests]
        conditioning: dict[str, Tensor] = {}
        if any(states is not None for states in before):
            conditioning["self_conditioning_mask"] = torch.tensor(
                [states is not None for states in before], device=rows.ends.device
            )
            conditioning["self_conditioning_logits"] = self._conditioning(before)
        states: Tensor = self._model.model.decoder(
            decoder_input_ids=torch.tensor(
                [self._noisy(r) for r in requests], device=rows.ends.device
            ),
            past_key_values=cache,
            decoder_attention_mask=rows.bidirectional(self._window, self._canvas),
            decoder_position_ids=rows.ends[:, None] + offsets,
            **conditioning,
        ).last_hidden_state
        for r, canvas in zip(requests, states, strict=True):
            self._denoised[r.slot] = _Denoised(_end(r), r.num_slots, canvas.clone())
        return states

    def _noisy(self, r: BlockRequest) -> list[int]:
        """Return a canvas: the tokens that its slots hold, everywhere else noise."""
        end, size = _end(r), self.capabilities.vocab_size
        noise = [int(uniform(_NOISE_SEED, end + j) * size) for j in range(self._canvas)]
        for slot, token in enumerate(r.filled):
            if token >= 0:
                noise[slot] = token
        return noise

    def _before(self, r: BlockRequest) -> Tensor | None:
        """Return the states of the step before where the request goes on with a block."""
        last = self._denoised.get(r.slot)
        if not r.filled or last is None or (last.end, last.num_slots) != (_end(r), r.num_slots):
            return None
        return last.states

    def _conditioning(self, before: Sequence[Tensor | None]) -> Tensor:
        """Return the logits [requests, canvas, vocabulary] of the steps before, zeros if none."""
        like = self._model.lm_head.weight
        logits: Tensor = like.new_zeros(len(before), self._canvas, self.capabilities.vocab_size)
        for row, states in enumerate(before):
            if states is not None:
                logits[row] = self._head(states)
        return logits

    def _head(self, states: Tensor) -> Tensor:
        """Return the capped logits of states [n, hidden], as transformers' class does it."""
        cap: float = self._model.final_logit_softcapping
        logits: Tensor = self._model.lm_head(states).float()
        return cap * torch.tanh(logits / cap)


def _end(r: BlockRequest) -> int:
    return r.start + len(r.tokens)


def load_diffusion_gemma(
    folder: Path,
    *,
    dtype: torch.dtype,
    device: str,
    num_candidates: int,
    max_mask_slots: int,
    max_len: int | None,
    cache_tokens: int,
) -> DiffusionGemmaDrafter:
    """Return the drafter of a folder with config.json and safetensors.

    Raises OSError for a missing file and ValueError for one that cannot be used.
    """
    config = _config(folder)
    loaded: Any = DiffusionGemmaForBlockDiffusion.from_pretrained(
        folder,
        config=config,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation="sdpa",
        # Listed in the loading info, and refused here by name.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **_ONLY,
    )
    model, found = loaded
    if misshapen := sorted(found["mismatched_keys"]):
        name, given, wanted = misshapen[0]
        raise ValueError(f"{name} is {list(given)}, not {list(wanted)}")
    if missing := sorted(found["missing_keys"]):
        raise ValueError(f"missing weights {missing[:3]}")
    # Text alone: what reads images would only take memory.
    model.model.encoder.vision_tower = model.model.encoder.embed_vision = None
    model = model.to(device).eval().requires_grad_(False)
    longest = max_len or config.text_config.max_position_embeddings
    return DiffusionGemmaDrafter(model, num_candidates, max_mask_slots, longest, cache_tokens)


def _config(folder: Path) -> Any:
    try:
        config: Any = DiffusionGemmaConfig.from_pretrained(folder, **_ONLY)
    except StrictDataclassError as error:
        raise ValueError(f"config.json cannot be used: {error}") from None
    text = config.text_config
    if not config.canvas_length:
        raise ValueError("config.json of a diffusion_gemma model has no canvas_length")
    if text.eos_token_id is None:
        raise ValueError("config.json of a diffusion_gemma model has no text_config.eos_token_id")
    if text.use_bidirectional_attention == "all":
        raise ValueError("text_config.use_bidirectional_attention 'all' is not supported")
    return config
