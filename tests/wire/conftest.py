"""Checkpoints that several files of this ring serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.families.served_dflash import Checkpoints


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    # Imported here: pytest reads this file in processes that run no test.
    from tests.support.families.dflash import write_drafter, write_target
    from tests.support.families.served_dflash import Checkpoints

    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return Checkpoints(target, folder / "drafter", write_drafter(folder / "drafter"))
