"""A Ray that Foredraft starts asks for a token."""

from __future__ import annotations

import os
import socket

import pytest
from ray._private import services

from deployments.serve.environment import require_token
from deployments.serve.platform.local_ray import runs_already
from foredraft.errors import ConfigError


def test_a_ray_that_was_killed_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the file behind that names it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    named: list[str | None] = [None]
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: named[0])
    assert not runs_already()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        named[0] = f"127.0.0.1:{listening.getsockname()[1]}"
        assert runs_already()
    assert not runs_already()


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
