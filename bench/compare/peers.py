"""What a user would otherwise pick: `transformers` generate on the same weights and prompts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from bench.compare.rows import Run
from foredraft.types import SamplingParams
from verifier_service.models.checkpoint import load_config


class Transformers:
    """Plain, prompt-lookup and assisted decoding of `transformers`, bf16, batch size 1."""

    def __init__(self, target: str, eos: Sequence[int]) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            target,
            config=load_config(Path(target)),
            dtype=torch.bfloat16,
            local_files_only=True,
            use_safetensors=True,
        ).eval()
        # Without an end a text goes on to its longest; something must pad it all the same.
        self._ends: dict[str, Any] = {
            "eos_token_id": list(eos) or None,
            "pad_token_id": [*eos, 0][0],
        }

    @property
    def layers(self) -> int:
        """The model's depth."""
        return int(self._model.config.num_hidden_layers)

    def run(
        self,
        prompt: tuple[int, ...],
        sampling: SamplingParams,
        max_tokens: int,
        lookup: bool,
        early_exit: int = 0,
    ) -> Run:
        """Decode one prompt; lookup drafts 10 tokens from the prompt's own n-grams.

        early_exit above 0 is assisted generation whose assistant is the model's own first layers,
        so many of them. How many drafts were kept is counted from the number of forward passes.
        """
        calls = _CountForwards(self._model)
        options: dict[str, Any] = {"prompt_lookup_num_tokens": 10} if lookup else {}
        if early_exit:
            options["assistant_early_exit"] = early_exit
        drafts = bool(options)
        if sampling.temperature > 0:
            options |= {"do_sample": True, "temperature": sampling.temperature, "top_k": 0}
            torch.manual_seed(sampling.seed)
        ids = torch.tensor([prompt])
        start = time.perf_counter()
        with calls:
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                **self._ends,
                **options,
            )
        seconds = time.perf_counter() - start
        tokens = tuple(out[0, len(prompt) :].tolist())
        kept = len(tokens) - calls.count if drafts else 0
        return Run(tokens, seconds, kept=kept, draft_rounds=calls.count if drafts else 0)


class _CountForwards:
    """Counts a model's forward passes through all of its layers while it is entered."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._depth = model.config.num_hidden_layers
        self.count = 0

    def __enter__(self) -> None:
        self._hook = self._model.register_forward_hook(self._add)

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _add(self, *_: object) -> None:
        # An early exit is the same model with fewer layers.
        self.count += self._model.config.num_hidden_layers == self._depth
