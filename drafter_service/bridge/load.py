"""The bridge of a configuration: both tokenizers' files read and paired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drafter_service.bridge.pair import Pair
from foredraft.errors import ConfigError, WeightsError
from foredraft.model_files import eos_token_ids
from foredraft.vocabulary import Vocabulary


def load_pair(own: Path | None, own_eos: int, size: int, target: Path) -> Pair:
    """Return the drafter's tokenizer beside the target's; size is the number of the drafter's ids.

    Raise ConfigError naming the field of the file that cannot be used.
    """
    if own is None:
        raise ConfigError(
            "target_tokenizer needs the drafter's own tokenizer.json beside it or as tokenizer",
            param="tokenizer",
        )
    with _naming("tokenizer"):
        drafter = Vocabulary(own)
    with _naming("target_tokenizer"):
        other = Vocabulary(target)
        eos = _eos(target, other)
    return Pair(drafter, own_eos, other, eos, size)


@contextmanager
def _naming(param: str) -> Iterator[None]:
    """Raise ConfigError naming the field for what a file's reader raises."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{param} cannot be read: {error.strerror}", param=param) from None
    except (ValueError, WeightsError) as error:
        raise ConfigError(f"{param} cannot be used: {error}", param=param) from None


def _eos(file: Path, vocabulary: Vocabulary) -> int:
    """Return the token that ends the target's texts, as the files beside its tokenizer tell."""
    found = eos_token_ids(file.parent)
    if found and found[0] < len(vocabulary.spelling):
        return found[0]
    settings = file.with_name("tokenizer_config.json")
    named = json.loads(settings.read_text()).get("eos_token") if settings.is_file() else None
    name = named.get("content") if isinstance(named, dict) else named
    if name not in vocabulary.specials:
        raise ValueError("no config.json or tokenizer_config.json beside it names the end token")
    return vocabulary.specials[name]
