"""g(seed, position, token): the Gumbel(0,1) noise that drafter and verifier share.

The noise is a function, not a message: a counter-based hash of its three arguments, so any process
can evaluate it for any few tokens, in any order and batch shape, and gets the same bits. To keep
the bits equal between NumPy, PyTorch and machines, only integer operations and IEEE-754 double
additions, multiplications and divisions are used, each rounded on its own; the logarithm is our own
series (absolute error below 1e-12), because library logarithms differ in the last bit.

Gumbel-max: argmax_v [log p(v) + g(v)] is a draw from p. Two draws that share g agree with
probability at least (1 - TV) / (1 + TV) (Daliri, Musco and Suresh, "Coupling without
communication", 2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from foredraft.noise.streams import GOLDEN, HASH_BITS, MIX_1, MIX_2, signed, stream_key

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

_LN_2 = 0.6931471805599453


def _shift(x: Any, bits: int) -> Any:
    """Logical right shift of signed 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _hash(keys: Any, tokens: Any) -> Any:
    """Return 52 random bits for each key and token (int64 arrays or tensors that broadcast)."""
    x = keys + (tokens + 1) * signed(GOLDEN)
    x = (x ^ _shift(x, 30)) * signed(MIX_1)
    x = (x ^ _shift(x, 27)) * signed(MIX_2)
    return _shift(x ^ _shift(x, 31), 64 - HASH_BITS)


def _log(x: Any, int64: Any, float64: Any) -> Any:
    """Natural logarithm of positive normal doubles: exponent by bits, mantissa by atanh series."""
    bits = x.view(int64)
    exponent = _shift(bits, 52) - 1023
    mantissa = ((bits & ((1 << 52) - 1)) | (1023 << 52)).view(float64)
    # Bring the mantissa from [1, 2) to [0.75, 1.5), so that |s| <= 0.2 and the series is short.
    high = mantissa >= 1.5
    halve = high * 0.5
    mantissa = mantissa - mantissa * halve
    exponent = exponent + high * 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    s2 = s * s
    series = s2 * (1.0 / 15.0) + (1.0 / 13.0)
    for k in (11, 9, 7, 5, 3):
        series = series * s2
        series = series + (1.0 / k)
    series = series * s2
    series = series + 1.0
    # An explicit cast: torch would promote int64 * float to its default float32.
    return _to_double(exponent, float64) * _LN_2 + series * s * 2.0


def _gumbel(bits: Any, int64: Any, float64: Any) -> Any:
    """Return -log(-log(u)) for u = (bits + 1/2) / 2^52."""
    u = _to_double(bits, float64) * 2.0**-HASH_BITS + 2.0 ** -(HASH_BITS + 1)
    return -_log(-_log(u, int64, float64), int64, float64)


def _to_double(x: Any, float64: Any) -> Any:
    return x.astype(float64) if isinstance(x, np.ndarray) else x.to(float64)


class Noise(Protocol):
    """What evaluates g for tokens [n, m] at positions [n]."""

    def __call__(
        self, seed: int, positions: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return what `gumbel` does."""


def gumbel(
    seed: int, positions: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return g(seed, position, token), float64 [n, m], for positions [n], tokens [n, m] or [m]."""
    keys = np.array([stream_key(seed, int(p)) for p in positions], dtype=np.int64)[:, None]
    with np.errstate(over="ignore"):
        bits = _hash(keys, np.asarray(tokens, dtype=np.int64))
    return np.asarray(_gumbel(bits, np.int64, np.float64))


def gumbel_torch(keys: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the noise of int64 stream keys and tokens that broadcast: float64, on their device.

    Equal to `gumbel` bit for bit; keys come from `stream_key`.
    """
    import torch

    return torch.as_tensor(_gumbel(_hash(keys, tokens), torch.int64, torch.float64))


def hash_torch(keys: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the 52 bits that `gumbel_torch` turns into noise, which grows with them."""
    import torch

    return torch.as_tensor(_hash(keys, tokens))


def gumbel_of_hash(bits: torch.Tensor) -> torch.Tensor:
    """Return the noise of the 52 bits that `hash_torch` gave: float64, same shape."""
    import torch

    return torch.as_tensor(_gumbel(bits, torch.int64, torch.float64))


def gumbel_single(bits: torch.Tensor) -> torch.Tensor:
    """Return the noise of the 52 bits that `hash_torch` gave in single precision, same shape.

    For what drafter and target need not have in common to the last bit: which tokens to guess.
    """
    # Of 1 - u, which is exact where it is small and the noise is great.
    rest = ((1 << HASH_BITS) - bits).float() * 2.0**-HASH_BITS
    return -(-rest.neg().log1p()).log()
