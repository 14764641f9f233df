"""Paper reproduction: DiffuSpec's own causal proxy, a KenLM n-gram model (Sec. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drafter_service.proposals.causal_scorer import LEAST, BlockScorer, Path
from drafter_service.proposals.lattice import NEVER, Floats, Ints, Lattice


class KenLMScorer:
    """A KenLM model over token ids written as words."""

    def __init__(self, path: str) -> None:
        """Load an ARPA file or a KenLM binary of one.

        Raises ImportError without the kenlm package, OSError for a file that KenLM cannot read and
        ValueError for a model of other words than token ids.
        """
        import kenlm

        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        self._model: Any = kenlm.Model(path, config)
        self._new_state: Any = kenlm.State
        if "0" not in self._model:
            raise ValueError(f"{path} is not a model of token ids")

    def bind(self, lattice: Lattice, context: Sequence[int]) -> BlockScorer:
        """Return the scorer of one block; context is the whole prefix, or no less than the model's
        order: what is shorter begins with <s>.
        """
        state, reach = self._new_state(), self._model.order - 1
        if len(context) < reach:
            self._model.BeginSentenceWrite(state)
        else:
            self._model.NullContextWrite(state)
        for token in context[len(context) - min(reach, len(context)) :]:
            state, before = self._new_state(), state
            self._model.BaseScore(before, str(token), state)
        return _BoundKenLM(self._model, self._new_state, lattice, state)


class _BoundKenLM:
    _LN_10 = 2.302585092994046

    def __init__(self, model: Any, new_state: Any, lattice: Lattice, start: Any) -> None:
        self._score, self._new_state = model.BaseScore, new_state
        self._words = [[str(token) for token in row] for row in lattice.tokens.tolist()]
        self._used = lattice.log_q > NEVER
        self._states: dict[Path, Any] = {(): start}

    def step(self, slot: int, paths: Sequence[Path], parents: Ints) -> Floats:
        states = [self._state(path) for path in paths]
        self._states = dict(zip(paths, states, strict=True))
        # Most places of a pruned lattice are unused.
        used = np.flatnonzero(self._used[slot])
        words = [self._words[slot][column] for column in used.tolist()]
        score, passed = self._score, self._new_state()
        probabilities = np.ones((len(paths), len(self._words[slot])))
        log10 = np.array([[score(state, word, passed) for word in words] for state in states])
        probabilities[:, used] = np.maximum(np.exp(log10 * self._LN_10), LEAST)
        return probabilities

    def _state(self, path: Path) -> Any:
        """Return the state after path, all of which but the last token had one a step before."""
        if not path:
            return self._states[path]
        state = self._new_state()
        self._score(self._states[path[:-1]], str(path[-1]), state)
        return state
