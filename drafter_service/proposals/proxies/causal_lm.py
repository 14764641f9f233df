"""Paper reproduction: a small causal language model as the proxy of DiffuSpec Eq. 7."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from drafter_service.proposals.causal_scorer import LEAST, BlockScorer, Path
from drafter_service.proposals.lattice import Floats, Ints, Lattice
from foredraft.model_files import expand_compressed


def load_causal_lm(folder: pathlib.Path) -> Any:
    """Return the model in a folder in single precision: safetensors only, no code of the folder's.

    Raises OSError, KeyError, RuntimeError or ValueError for a folder that cannot be used, the last
    for weights that are not finite too.
    """
    only = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **only)
    expand_compressed(config)
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, use_safetensors=True, dtype=torch.float32, **only
    )
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise ValueError("its weights are not finite")
    return model.eval().requires_grad_(False)


class CausalLMScorer:
    """A model's probabilities, over its whole vocabulary, of each candidate behind each path.

    Of the text, which must not be empty, it sees the last `window` tokens.
    """

    def __init__(self, model: Any, window: int) -> None:
        self._model, self._window = model, window

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block, after a pass over the window."""
        return _BoundLM(self._model, lattice.tokens, context[-self._window :])


class _BoundLM:
    """One pass for each slot: the last tokens of all paths as rows, behind their own caches."""

    def __init__(self, model: Any, tokens: Ints, text: Sequence[int]) -> None:
        self._model, self._tokens = model, torch.from_numpy(tokens)
        self._rows: dict[Path, int] = {(): 0}
        self._cache: Any = None
        self._probabilities = self._run([list(text)])

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        if slot:
            # All of a path but its last token was a path of the slot before.
            self._probabilities = self._run(
                [[path[-1]] for path in paths], [self._rows[path[:-1]] for path in paths]
            )
            self._rows = {path: row for row, path in enumerate(paths)}
        found: Floats = self._probabilities[:, self._tokens[slot]].numpy()
        return np.maximum(found, LEAST)

    @torch.inference_mode()
    def _run(self, tokens: list[list[int]], behind: Sequence[int] = ()) -> torch.Tensor:
        """Return what follows each row of tokens, which goes on from a row of the cache."""
        if behind:
            self._cache.reorder_cache(torch.tensor(behind))
        answer = self._model(
            input_ids=torch.tensor(tokens), past_key_values=self._cache, use_cache=True
        )
        self._cache = answer.past_key_values
        probabilities: torch.Tensor = answer.logits[:, -1].double().softmax(-1)
        return probabilities
