"""The proxy's training rows, and its two forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from drafter_service.proposals.proxies.ngram_table import NgramTable
from tests.support.oracles.backoff import log_probs
from tests.support.oracles.ngram_table import score
from training.cli import app
from training.corpus.tokenizer import EOS_ID, save_tokenizer, train_tokenizer
from training.embedded.generate import TOP, Continuations
from training.proxy.arpa import Ints, Words
from training.proxy.proxy import proxy_rows, split_texts, to_table, train_proxy

WORDS = Words(30)


def texts(seed: int) -> list[Ints]:
    random = np.random.default_rng(seed)
    found = [np.minimum(random.zipf(1.6, 4000), 30).astype(np.int64) - 1 for _ in range(3)]
    return [found[0], *(np.insert(row, 0, WORDS.begin) for row in found[1:])]


def write_work(folder: Path, vocab: int) -> None:
    random = np.random.default_rng(3)
    np.save(folder / "core.npy", random.integers(0, vocab, 500).astype(np.uint16))
    (folder / "continuations").mkdir()
    tokens = random.integers(0, vocab, (4, 20)).astype(np.uint16)
    top = np.zeros((4, 12, TOP))
    shard = Continuations(
        tokens,
        8,
        np.zeros(4, np.float32),
        top.astype(np.uint16),
        top.astype(np.float16),
    )
    shard.save(folder / "continuations" / "0000.npz")


def test_texts_start_after_each_end() -> None:
    split = split_texts(np.array([5, 6, EOS_ID, 7, EOS_ID, EOS_ID, 8]), WORDS)
    begin = WORDS.begin
    assert [row.tolist() for row in split] == [
        [begin, 5, 6, EOS_ID],
        [begin, 7, EOS_ID],
        [begin, EOS_ID],
        [begin, 8],
    ]


def test_rows_are_the_continuations_and_the_first_texts(tmp_path: Path) -> None:
    write_work(tmp_path, vocab=30)
    rows = proxy_rows(tmp_path / "continuations", tmp_path, 100, WORDS)
    assert [len(row) for row in rows[:4]] == [14] * 4
    corpus = [row for row in rows if row[0] == WORDS.begin]
    assert len(rows) == 4 + len(corpus)
    assert np.array_equal(
        np.concatenate([row[1:] for row in corpus]), np.load(tmp_path / "core.npy")[:100]
    )


def test_table_says_what_the_model_says(tmp_path: Path) -> None:
    model = train_proxy(texts(2), WORDS)
    table = to_table(model)
    table.save(tmp_path)
    stored = NgramTable.load(tmp_path)
    words = np.arange(WORDS.size)
    for context in ([], [3], [29], [0, 0], [1, 0], [29, 28]):
        rows = [np.array([*context, word]) for word in words]
        expected = [float(log_probs(model, [row])[-1]) * np.log(10) for row in rows]
        assert score(table, context, words) == pytest.approx(expected, abs=1e-5), context
        assert score(stored, context, words) == pytest.approx(expected, abs=0.01), context
    with pytest.raises(FileNotFoundError):
        NgramTable.load(tmp_path / "absent")


def test_table_is_of_three_words_and_of_int32_keys() -> None:
    with pytest.raises(ValueError, match="order 2"):
        to_table(train_proxy(texts(2), WORDS, (0, 0)))
    with pytest.raises(ValueError, match="50000 tokens"):
        to_table(train_proxy([np.arange(50)], Words(50_000)))


@pytest.mark.parametrize(("prune", "orders"), [("0,1,1", 3), ("0,0,0,1", 4)])
def test_command_writes_the_table_and_the_file(tmp_path: Path, prune: str, orders: int) -> None:
    save_tokenizer(train_tokenizer(["x = 1\n"], vocab_size=280), tmp_path / "tokenizer")
    write_work(tmp_path, vocab=250)
    options = ["--work", str(tmp_path), "--out", str(tmp_path), "--prune", prune]
    result = CliRunner().invoke(app, ["proxy", *options])
    assert result.exit_code == 0, result.output
    assert NgramTable.load(tmp_path / "proxy").vocab_size <= 280
    head = (tmp_path / "proxy.arpa").read_text().split("\n\n")[0].splitlines()
    assert len(head) == 1 + orders


@pytest.mark.parametrize("prune", ["0,x", "", "1,1", "0,2,1", "0,-1", "0"])
def test_command_names_bad_limits(tmp_path: Path, prune: str) -> None:
    result = CliRunner().invoke(app, ["proxy", "--work", str(tmp_path), "--prune", prune])
    assert result.exit_code == 2 and "two or more" in result.output
