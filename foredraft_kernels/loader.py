"""Loads the kernels: one optional extension module, plain C without Python in it, beside this."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Literal

from foredraft.errors import ConfigError, ForedraftError
from foredraft_kernels.structs import ABI

log = logging.getLogger(__name__)

Isa = Literal["amx", "avx512", "avx2"]
Products = Literal["bf16", "int8"]

_CODES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int64,
    "d": ctypes.c_double,
    "f": ctypes.c_int,  # failed: 0 or 1
    "-": None,
}
# The result, then the arguments.
_SIGNATURES = {
    "fd_attend": "f pi pii pii pii p",
    "fd_keep": "- p iiii p ii",
    "fd_draw": "i p i i d p",
    "fd_choose": "- p iii pp d pp",
    "fd_guess": "- p iii pp d p i p",
    "fd_ngram_tree": "i pppp",
    "fd_step": "f pp ii d iii d ppppp",
    "fd_drafts": "i pppppp ii pp",
    "fd_gumbel": "- p i p i p",
    "fd_beam": "i pppp",
    "fd_tree": "i p i ppp",
}
# Of functions that are there once for each instruction set.
_SIGNATURES_BF16 = {
    "fd_linear": "f pp i p i",
    "fd_forward": "f p pi pi pi pp i",
    "fd_keep_panels": "- p iiii p i",
}
_SIGNATURES_INT8 = {"fd_draft": "f pp i ppppppp"}


class _Number(ctypes.Structure):
    """abi.h's abi_number."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int64))


@functools.cache
def load_kernels() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where they were not built.

    Raise ForedraftError where they were built from other sources than the Python beside them.
    """
    here = Path(__file__).parent
    path = next((p for s in EXTENSION_SUFFIXES if (p := here / f"_native{s}").is_file()), None)
    if path is None:
        log.warning("the compiled kernels were not built; using the slower reference")
        return None
    kernels = ctypes.CDLL(str(path))
    for part, expected in ABI.items():
        check_abi(part, _reported(kernels, part), expected)
    _declare(kernels, _SIGNATURES)
    for isa in supported_isas(kernels, "bf16"):
        _declare(kernels, {f"{name}_{isa}": each for name, each in _SIGNATURES_BF16.items()})
    for isa in supported_isas(kernels, "int8"):
        _declare(kernels, {f"{name}_{isa}": each for name, each in _SIGNATURES_INT8.items()})
    return kernels


def supported_isas(kernels: ctypes.CDLL, products: Products) -> list[Isa]:
    """Return the instruction sets that this CPU runs a compiled forward with, the best first.

    avx512 needs an instruction for the forward's products: AVX512_BF16 the verifier's in bf16,
    AVX512_VNNI the drafter's in int8. amx is that with tiles for the weights, of AMX_BF16 or
    AMX_INT8. Results have the same bits with each.
    """
    found: list[Isa] = []
    if getattr(kernels, f"fd_has_amx_{products}")():
        found.append("amx")
    if getattr(kernels, f"fd_has_avx512_{products}")():
        found.append("avx512")
    if kernels.fd_has_avx2():
        found.append("avx2")
    return found


def choose_isa(
    kernels: ctypes.CDLL | None, products: Products, wanted: Isa | Literal["auto"]
) -> Isa | None:
    """Return the instruction set for a compiled forward, None where none can be had.

    Raise ConfigError where the one that is wanted by name cannot.
    """
    found = [] if kernels is None else supported_isas(kernels, products)
    if wanted == "auto":
        return next(iter(found), None)
    if wanted not in found:
        raise ConfigError(f"compiled kernels for {wanted} do not run here", param="isa")
    return wanted


def check_abi(part: str, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raise ForedraftError where the library's structs or bounds are not those of structs.py."""
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise ForedraftError(
                f"the compiled kernels do not fit this version: {part} {name} is "
                f"{found.get(name)}, expected {expected.get(name)}; build them again"
            )


def _reported(kernels: ctypes.CDLL, part: str) -> dict[str, int]:
    """Return the numbers that a part of the library reports; none if it is too old to."""
    report = getattr(kernels, f"fd_{part}_abi", None)
    numbers: dict[str, int] = {}
    if report is None:
        return numbers
    report.restype = ctypes.POINTER(_Number)
    for number in report():
        if number.name is None:
            break
        numbers[number.name.decode()] = number.value
    return numbers


def _declare(kernels: ctypes.CDLL, signatures: Mapping[str, str]) -> None:
    for name, signature in signatures.items():
        result, *arguments = list(signature.replace(" ", ""))
        function = getattr(kernels, name)
        function.restype = _CODES[result]
        function.argtypes = [_CODES[code] for code in arguments]
