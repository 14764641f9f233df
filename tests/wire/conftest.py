"""Checkpoints that several files of this ring serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from tests.support.families.served_dflash import Checkpoints, Served


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    # Imported here: pytest reads this file in processes that run no test.
    from tests.support.families.dflash import write_drafter, write_target
    from tests.support.families.served_dflash import Checkpoints

    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return Checkpoints(target, folder / "drafter", write_drafter(folder / "drafter"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(checkpoints: Checkpoints) -> AsyncIterator[Served]:
    """Both services with them, for the tests of a file that share its event loop."""
    from tests.support.families.served_dflash import Served, drafting, verifying

    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        yield Served(verifier, drafter)
