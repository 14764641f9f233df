"""What every ring starts from: one thread of torch a process, and no test that time fails."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# As the verifier does for `numerics: exact`, before torch is loaded.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# A busy machine is slow at any moment.
settings.register_profile(
    "foredraft", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("foredraft")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Processes of tests share the cores; what is loaded sets the threads that it is to have."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
