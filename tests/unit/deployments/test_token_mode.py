"""A Ray that Foredraft starts asks for a token."""

from __future__ import annotations

import os

import pytest
from ray._private import services

from deployments.serve.platform import require_token
from foredraft.errors import ConfigError


def test_a_ray_of_our_own_has_a_token_and_none_starts_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    require_token()
    # Ray has read its environment by now: what is set here would be seen by its children alone.
    assert "RAY_AUTH_MODE" not in os.environ
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE is disabled"):
        require_token()
    # What runs already is left as it is.
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    require_token()
