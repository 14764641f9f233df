"""YAML files as values; a key that stands twice is a fault, of which YAML keeps the last."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from foredraft.errors import ConfigError


class _Loader(yaml.SafeLoader):
    pass


def _unique(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if key in keys:
            raise ConfigError(f"line {key_node.start_mark.line + 1}: {key} stands twice")
        keys.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique)


def documents(path: Path) -> list[Any]:
    """Return the documents of a file, of standard input for `-`; raise ConfigError where it is
    none, or none of YAML.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}") from None
    return parsed(text)


def parsed(text: str) -> list[Any]:
    """Return a text's documents; raise ConfigError where it is no YAML."""
    try:
        return [each for each in yaml.load_all(text, _Loader) if each is not None]
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None
