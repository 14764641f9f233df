"""The ARPA file, and what KenLM makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.oracles.backoff import log_probs
from training.proxy.arpa import NEVER, BackoffModel, Entries, Ints, Words, save_arpa
from training.proxy.kneser_ney import count_ngrams, estimate

WORDS = Words(40)


def rows(seed: int, texts: int) -> list[Ints]:
    random = np.random.default_rng(seed)
    found = [np.minimum(random.zipf(1.3, 400), WORDS.size) - 1 for _ in range(texts)]
    return [np.insert(row, 0, WORDS.begin) if i % 2 else row for i, row in enumerate(found)]


def test_file_has_a_line_per_ngram(tmp_path: Path) -> None:
    words = Words(2)
    unigrams = Entries(
        np.arange(words.count),
        np.array([-0.25, -0.5, NEVER, -1.0, -1.25]),
        np.array([-0.1234567891, 0, -0.75, 0, 0]),
    )
    pairs = Entries(
        np.array([words.base, words.begin * words.base]), np.full(2, -0.125), np.zeros(2)
    )
    save_arpa(BackoffModel(words, [unigrams, pairs]), tmp_path / "two.arpa")
    assert (tmp_path / "two.arpa").read_text() == (
        "\\data\\\nngram 1=5\nngram 2=2\n"
        "\n\\1-grams:\n-0.25\t0\t-0.1234568\n-0.5\t1\t0\n-99\t<s>\t-0.75\n-1\t</s>\t0\n-1.25\t<unk>\t0\n"
        "\n\\2-grams:\n-0.125\t1 0\n-0.125\t<s> 0\n"
        "\n\\end\\\n"
    )


@pytest.mark.parametrize("limits", [[0, 0], [0, 0, 0], [0, 1, 2], [0, 0, 1, 1]])
def test_kenlm_reads_the_same_model(tmp_path: Path, limits: list[int]) -> None:
    kenlm: Any = pytest.importorskip("kenlm", reason="the kenlm package is not installed")
    model = estimate(count_ngrams(rows(0, 8), WORDS, len(limits)), WORDS, limits)
    save_arpa(model, tmp_path / "proxy.arpa")
    read = kenlm.Model(str(tmp_path / "proxy.arpa"))
    assert read.order == len(limits)
    held_out = rows(1, 4)
    scores: list[float] = []
    for row in held_out:
        text = " ".join(WORDS.names[word] for word in row.tolist() if word != WORDS.begin)
        begins = bool(row[0] == WORDS.begin)
        # KenLM's own sum over a text is of single precision.
        scores += [score for score, _, _ in read.full_scores(text, bos=begins, eos=False)]
    np.testing.assert_allclose(scores, log_probs(model, held_out), atol=1e-5)
    for word, name in ((WORDS.begin + 1, "</s>"), (WORDS.begin + 2, "unheard-of")):
        expected = model.orders[0].log_probs[word]
        assert read.score(name, bos=False, eos=False) == pytest.approx(expected, abs=1e-5)
