"""The pair that is shipped: whole, small enough, and of one vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

from deployments.config import model_path
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.proposals.proxies.ngram_table import NgramTable
from foredraft.model_files import MANIFEST, eos_token_ids, sha256
from tests.support.oracles.ngram_table import score

PAIR = Path(model_path("models/embedded"))
DOCUMENTS = {MANIFEST, "MODEL_CARD.md"}


def test_every_file_is_listed_with_its_hash() -> None:
    listed = json.loads((PAIR / MANIFEST).read_text())
    present = {p.relative_to(PAIR).as_posix(): p for p in PAIR.rglob("*") if p.is_file()}
    assert set(present) - DOCUMENTS <= set(listed)
    assert {name: sha256(present[name]) for name in listed} == listed


def test_the_weights_are_within_their_bound() -> None:
    assert sum(p.stat().st_size for p in PAIR.rglob("*.safetensors")) <= 102_000_000


def test_drafter_and_target_share_a_vocabulary() -> None:
    target = json.loads((PAIR / "target" / "config.json").read_text())
    drafter = json.loads((PAIR / "drafter" / "config.json").read_text())
    for key in ("vocab_size", "eos_token_id", "hidden_size"):
        assert target[key] == drafter[key]
    engine = load_engine(DrafterConfig(model=PAIR / "drafter"))
    assert engine.info.vocab_size == target["vocab_size"]
    assert engine.info.eos_token_ids == eos_token_ids(PAIR / "target") == (0,)
    assert engine.info.mask_token_id == drafter["mask_token_id"]
    assert engine.info.tokenizer_hash == sha256(PAIR / "tokenizer" / "tokenizer.json")


def test_the_proxy_is_a_distribution() -> None:
    import numpy as np

    table = NgramTable.load(PAIR / "proxy")
    total = np.exp(score(table, [100, 200, 300], np.arange(4096))).sum()
    assert abs(total - 1) < 0.01
