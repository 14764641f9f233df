"""The target of the exactness grid, for a verifier's engine."""

import numpy as np

from foredraft.types import ModelInfo
from tests.support.law.exactness import FIRST, LOGITS, VOCAB
from tests.support.verifiers import CountingModel


class TabularModel(CountingModel):
    """The grid's target as the engine knows it."""

    def __init__(self):
        super().__init__()
        self.info = ModelInfo(VOCAB, 50, "", "exact", "tabular")

    def logits(self, text):
        return LOGITS.get(tuple(text[FIRST:]), np.zeros(VOCAB, np.float32))
