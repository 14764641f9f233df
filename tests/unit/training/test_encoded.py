"""What is trained on a corpus that was never made."""

from __future__ import annotations

import numpy as np
import pytest

from foredraft.errors import ConfigError
from training.corpus.corpus import read_corpus
from training.corpus.encoded import encoded


def test_a_missing_corpus_is_an_error_that_names_the_command(tmp_path):
    with pytest.raises(ConfigError, match=r"core\.npy is missing: run `foredraft train corpus`"):
        encoded(tmp_path, "core")
    with pytest.raises(ConfigError, match=r"corpus\.jsonl is missing: run"):
        read_corpus(tmp_path / "corpus.jsonl")


def test_tokens_are_those_of_the_file(tmp_path):
    np.save(tmp_path / "rest.npy", np.arange(7, dtype=np.uint16))
    assert encoded(tmp_path, "rest").tolist() == list(range(7))
