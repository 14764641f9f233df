"""Is the forward row-invariant? Measured at start-up, on the loaded weights, bit by bit.

The same text is fed in chunks of several sizes, as one prefill, and beside other sessions. Where
every logit has the same bits each time, speculative and plain decoding cannot differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foredraft.errors import ConfigError, WeightsError
from verifier_service.model.port import Segment, TargetModel

if TYPE_CHECKING:
    import numpy.typing as npt

_CHUNKS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32)
_TEXT_TOKENS = 96
_PREFIX_TOKENS = 33
_NEIGHBOURS = 4


def measure(model: TargetModel) -> str:
    """Return "exact", or "tolerance <largest absolute logit difference>".

    Raise WeightsError where logits are not finite: this is also the model's self-test.
    """
    rng = np.random.default_rng(0)
    length = min(_TEXT_TOKENS, model.info.max_len)
    prefix = min(_PREFIX_TOKENS, length // 2)
    vocab = model.info.vocab_size
    texts = [rng.integers(0, vocab, length).tolist() for _ in range(1 + _NEIGHBOURS)]
    slots = [model.alloc(length) for _ in texts]
    text, slot = texts[0], slots[0]
    try:
        reference = model.forward([Segment(slot, 0, text, length)])
        if not np.isfinite(reference).all():
            raise WeightsError("the model's logits are not finite")
        difference = 0.0
        for chunk in _CHUNKS:
            logits = [
                model.forward([Segment(slot, i, text[i : i + chunk], len(text[i : i + chunk]))])
                for i in range(0, length, chunk)
            ]
            difference = max(difference, _difference(np.concatenate(logits), reference))
        for rows in (1, 9):
            # Neighbours first prefill, then step beside the text, at other lengths than its own.
            ends = [prefix + rows * (i + 1) for i in range(len(texts))]
            for i, end in enumerate(ends):
                model.forward([Segment(slots[i], 0, texts[i][: end - rows], 1)])
            batch = [
                Segment(slots[i], end - rows, texts[i][end - rows : end], rows)
                for i, end in enumerate(ends)
                if end <= length
            ]
            beside = model.forward(batch)[:rows]
            difference = max(difference, _difference(beside, reference[ends[0] - rows : ends[0]]))
    finally:
        for taken in slots:
            model.free(taken)
    return "exact" if difference == 0 else f"tolerance {difference:.3g}"


def _difference(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Return max |a - b|, infinite where a value is not a number."""
    if np.array_equal(a, b):
        return 0.0
    return float(np.nan_to_num(np.abs(a - b), nan=np.inf).max())


def require_exact(measured: str, *, dtype: str) -> None:
    """Raise ConfigError unless exact was measured; the message says what to change."""
    if measured != "exact":
        hint = "" if native_bf16() else "; this CPU has no native bf16 arithmetic"
        raise ConfigError(
            f"numerics: exact was asked, but with {dtype} this machine has {measured}{hint}; "
            "choose numerics: fast, or bf16 on a CPU with avx512_bf16",
            param="numerics",
        )


def native_bf16() -> bool:
    """True where the CPU says that it has bf16 arithmetic (x86 avx512_bf16 or amx, Arm bf16)."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
