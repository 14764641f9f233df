"""API keys: a file of their hashes, and which one a request has."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import Field

from foredraft.errors import ConfigError
from foredraft.strict import StrictModel, parse

_PREFIX = "fd-"
_PARAM = "ingress.keys_file"


class Key(StrictModel):
    """A key's name, its hash, and what it may do; limits are those of each ingress replica."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[\w.@-]+$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    requests_per_minute: float | None = Field(default=None, gt=0)
    concurrent_requests: int | None = Field(default=None, ge=1)


class KeysFile(StrictModel):
    """What a file of keys holds."""

    keys: tuple[Key, ...] = Field(min_length=1, max_length=4096)


class Keys:
    """The keys that open a server."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]

    def of(self, presented: str) -> Key | None:
        """Return the key that was presented, None if it is none.

        All are compared, so that the time reveals nothing of which ones come close.
        """
        digest = _digest(presented)
        found = None
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                found = key
        return found


def read_keys(path: Path) -> tuple[Key, ...]:
    """Return the file's keys; raise ConfigError naming what is wrong with it."""
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{_PARAM}: {path}: {error.strerror}", param=_PARAM) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{_PARAM}: {path} is not YAML", param=_PARAM) from None
    try:
        keys = parse(KeysFile, values).keys
    except ConfigError as error:
        raise ConfigError(f"{_PARAM}: {path}: {error}", param=_PARAM) from None
    names = [key.name for key in keys]
    if len(set(names)) < len(names):
        raise ConfigError(f"{_PARAM}: {path} has two keys of one name", param=_PARAM)
    return keys


def add_key(
    path: Path,
    name: str,
    requests_per_minute: float | None = None,
    concurrent_requests: int | None = None,
) -> str:
    """Make a key, add its hash to the file, and return it: it is not kept anywhere.

    A new file can be read by its owner alone. Raise ConfigError where the name is taken or a value
    is out of range.
    """
    known = read_keys(path) if path.exists() else ()
    made = _PREFIX + secrets.token_urlsafe(32)
    values = {
        "name": name,
        "sha256": _digest(made).hex(),
        "requests_per_minute": requests_per_minute,
        "concurrent_requests": concurrent_requests,
    }
    key = parse(Key, values)
    if name in {each.name for each in known}:
        raise ConfigError(f"name: {path} has a key {name}", param="name")
    listed = [each.model_dump(exclude_none=True) for each in (*known, key)]
    if not path.exists():
        path.touch(mode=0o600)
    path.write_text(yaml.safe_dump({"keys": listed}, sort_keys=False))
    return made


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
