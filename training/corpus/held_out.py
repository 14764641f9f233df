"""The modules that only evaluation may read, and the rule that recognises their files.

The list is fixed: changing it invalidates every held-out figure of the model card.
"""

from __future__ import annotations

from pathlib import PurePosixPath

STDLIB_HELD_OUT: tuple[str, ...] = (
    "argparse",
    "statistics",
    "textwrap",
    "shutil",
    "heapq",
    "csv",
    "configparser",
    "fractions",
    "sched",
    "zipfile",
    "cmd",
    "fileinput",
    "graphlib",
    "mailbox",
    "tarfile",
    "queue",
)

PACKAGE_HELD_OUT: dict[str, tuple[str, ...]] = {
    "networkx": ("algorithms/dag", "algorithms/cycles", "algorithms/matching", "generators/trees"),
    "sympy": ("ntheory/primetest", "ntheory/residue_ntheory", "combinatorics/partitions"),
    "numpy": ("lib/_polynomial_impl", "lib/_nanfunctions_impl", "polynomial/legendre"),
    "pydantic": ("color",),
    "click": ("termui",),
}


def held_out_module(source: str, relative: PurePosixPath) -> str | None:
    """Name of the held-out module that a file belongs to, else None.

    `source` is "stdlib" or a package name; `relative` is the file's path below the source's root.
    A module's own tests (test_<name>.py, test/test_<name>/...) belong to it.
    """
    parts = [*relative.parts[:-1], relative.stem]
    if source == "stdlib":
        for part in parts:
            name = part.removeprefix("test_").lstrip("_")
            if name in STDLIB_HELD_OUT:
                return name
        return None
    for module in PACKAGE_HELD_OUT.get(source, ()):
        stem = module.rsplit("/", 1)[-1]
        if relative.with_suffix("").as_posix() == module or parts[-1] == f"test_{stem.lstrip('_')}":
            return f"{source}.{module.replace('/', '.')}"
    return None
