"""What a pair of models decided, recorded once and played back: a target's texts, and a drafter's
candidates after each of their prefixes.

A safetensors file: `tokens` of all texts, one after the other; `lengths` [texts, 2], tokens of each
prompt and of each text; `sampling` [texts, 2], temperature and seed; and for each recorded number n
of mask slots `drafts.n.tokens`, `drafts.n.log_q` [prefixes, n, M] and `drafts.n.edge`
[prefixes, n, M, M], as BlockScores has them, in the order of `prefixes`; edges, most of the file,
in half precision.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from foredraft.decoding.prefix import extend_hash, hash_prefix
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt

Arrays = dict[str, "npt.NDArray[Any]"]

TARGET, DRAFTER = "target", "drafter"
_DRAFTS = re.compile(r"drafts\.([1-9]\d{0,3})\.tokens")


@dataclass(frozen=True, slots=True)
class RecordedText:
    """A prompt and what the target made of it, drawn with a temperature and a seed."""

    tokens: tuple[int, ...]
    prompt_len: int
    temperature: float
    seed: int

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens that were given."""
        return self.tokens[: self.prompt_len]

    @property
    def answer(self) -> tuple[int, ...]:
        """The tokens that the target decided."""
        return self.tokens[self.prompt_len :]


def prefixes(texts: Sequence[RecordedText]) -> Iterator[tuple[int, int]]:
    """Yield the hash of each prefix that the target continued, and its token; text after text."""
    for text in texts:
        found = hash_prefix(text.prompt)
        for token in text.answer:
            yield found, token
            found = extend_hash(found, (token,))


def continuations(texts: Sequence[RecordedText]) -> dict[int, int]:
    """Return the token after each prefix, by the prefix's hash.

    Raise ValueError where two texts begin alike and go on differently.
    """
    tokens: dict[int, int] = {}
    for found, token in prefixes(texts):
        if tokens.setdefault(found, token) != token:
            raise ValueError("two recorded texts have one prefix and different tokens after it")
    return tokens


def write(
    path: Path, texts: Sequence[RecordedText], drafts: Arrays, weights_hashes: dict[str, str]
) -> None:
    """Write a recording; the hashes are of the models in the roles TARGET and DRAFTER."""
    continuations(texts)
    arrays: Arrays = {
        "tokens": np.array([token for text in texts for token in text.tokens], dtype=np.int32),
        "lengths": np.array([(t.prompt_len, len(t.tokens)) for t in texts], dtype=np.int32),
        "sampling": np.array([(t.temperature, t.seed) for t in texts], dtype=np.float64),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(arrays | drafts, partial, weights_hashes)
    partial.rename(path)


class Recording:
    """A recording's file, of a model in a role: TARGET or DRAFTER.

    Raise ConfigError where there is none, or one of other weights.
    """

    def __init__(
        self, path: Path, role: str, name: str, weights_hash: str, vocab_size: int
    ) -> None:
        self._path = path
        try:
            self._file = safe_open(path, framework="np")
        except (OSError, SafetensorError) as error:
            raise self._refused(str(error)) from None
        if (self._file.metadata() or {}).get(role) != weights_hash:
            raise self._refused(f"it is not of the {role} {name}")
        self._vocab_size = vocab_size

    def texts(self) -> list[RecordedText]:
        """Return the texts; raise ConfigError for tokens or lengths out of bounds."""
        tokens = self.array("tokens", 1, np.int32)
        lengths = self.array("lengths", 2, np.int32)
        sampling = self.array("sampling", 2, np.float64)
        whole = lengths.shape[1] == 2 and sampling.shape == lengths.shape and len(lengths) > 0
        if not whole or (lengths[:, 0] < 1).any() or (lengths[:, 0] >= lengths[:, 1]).any():
            raise self._refused("its texts have impossible lengths")
        if int(lengths[:, 1].sum(dtype=np.int64)) != len(tokens):
            raise self._refused("its lengths are not those of its tokens")
        self.check_tokens(tokens)
        ends = accumulate(lengths[:, 1].tolist())
        return [
            RecordedText(
                tuple(tokens[end - count : end].tolist()), prompt, float(drawn[0]), int(drawn[1])
            )
            for end, (prompt, count), drawn in zip(ends, lengths.tolist(), sampling, strict=True)
        ]

    def numbers_of_slots(self) -> list[int]:
        """Return the numbers of mask slots of which there are drafts, ascending."""
        names = (name.split(".") for name in self._file.keys())  # noqa: SIM118 - no dict
        found = (
            n for kind, n, *_ in (name for name in names if len(name) == 3) if kind == "drafts"
        )
        numbers = sorted({int(n) for n in found if n.isdecimal()})
        if not numbers:
            raise self._refused("it holds no drafts")
        return numbers

    def has(self, name: str) -> bool:
        """Return whether there is an array of a name."""
        return name in self._file.keys()  # noqa: SIM118 - no dict

    def array(self, name: str, dimensions: int, dtype: Any) -> npt.NDArray[Any]:
        """Return an array; raise ConfigError where it is missing or of another kind."""
        if not self.has(name):
            raise self._refused(f"it has no {name}")
        found: npt.NDArray[Any] = self._file.get_tensor(name)
        if found.ndim != dimensions or found.dtype != dtype:
            raise self._refused(f"its {name} are {found.dtype} {list(found.shape)}")
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise self._refused(f"its {name} are not finite")
        return found

    def check_tokens(self, tokens: npt.NDArray[Any]) -> None:
        """Raise ConfigError for tokens that are not the model's."""
        if tokens.size and (tokens.min() < 0 or tokens.max() >= self._vocab_size):
            raise self._refused("its tokens are outside the vocabulary")

    def refuse_shape(self, name: str) -> ConfigError:
        """Return the error for an array whose shape does not fit the others."""
        return self._refused(f"its {name} do not fit its texts")

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(f"recording: {self._path}: {reason}", param="recording")
