"""Checkpoints that several files of this ring serve."""

from __future__ import annotations

import pytest

from tests.support.families.dflash import write_drafter, write_target
from tests.support.families.served_dflash import Checkpoints


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return Checkpoints(target, folder / "drafter", write_drafter(folder / "drafter"))
