"""What a user would otherwise pick: `transformers` generate on the same weights and prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.rows import Run
from foredraft.types import SamplingParams
from verifier_service.model.checkpoint import load_config


class Transformers:
    """Plain and prompt-lookup decoding of `transformers`, bf16, batch size 1."""

    def __init__(self, target: str, eos: int) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            target,
            config=load_config(Path(target)),
            dtype=torch.bfloat16,
            local_files_only=True,
            use_safetensors=True,
        ).eval()
        self._eos = eos

    def run(
        self, prompt: tuple[int, ...], sampling: SamplingParams, max_tokens: int, lookup: bool
    ) -> Run:
        """Decode one prompt; lookup drafts 10 tokens from the prompt's own n-grams.

        How many drafts were kept is counted from the number of forward passes.
        """
        calls = _CountForwards(self._model)
        options: dict[str, Any] = {"prompt_lookup_num_tokens": 10} if lookup else {}
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
                eos_token_id=self._eos,
                pad_token_id=self._eos,
                **options,
            )
        seconds = time.perf_counter() - start
        tokens = tuple(out[0, len(prompt) :].tolist())
        kept = len(tokens) - calls.count if lookup else 0
        return Run(tokens, seconds, kept=kept, draft_rounds=calls.count if lookup else 0)


class _CountForwards:
    """Counts a model's forward passes while it is entered."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.count = 0

    def __enter__(self) -> None:
        self._hook = self._model.register_forward_hook(self._add)

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _add(self, *_: object) -> None:
        self.count += 1
