"""Two vocabularies by hand, paired."""

from __future__ import annotations

import pytest

from drafter_service.bridge.pair import Pair
from foredraft.vocabulary import Vocabulary
from tests.support.tokenizers_by_hand import (
    DRAFTER,
    END,
    T_END,
    TARGET,
    by_hand,
    saved,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("by_hand")
    drafter = Vocabulary(saved(by_hand(DRAFTER), folder / "drafter"))
    target = Vocabulary(saved(by_hand(TARGET, "</s>"), folder / "target", "</s>"))
    return Pair(drafter, END, target, T_END, 16)
