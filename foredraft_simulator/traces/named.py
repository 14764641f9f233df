"""A trace by its name on a command line: a file, one that is shipped, or a shape.

trace.csv                        a file in a public format
azure-conv, azure-code           1,000 requests of Azure's hour of 2023 each
ramp:peak=8,duration_s=300       a shape and what differs from its defaults
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft_simulator.traces.arrival import Trace
from foredraft_simulator.traces.reading import read_trace
from foredraft_simulator.traces.shapes import Shape, ShapeConfig, shaped

_DATA = Path(__file__).parent / "data"
SHIPPED = {
    "azure-conv": _DATA / "azure_2023_conv.csv",
    "azure-code": _DATA / "azure_2023_code.csv",
}


def named_trace(name: str, seed: int = 0) -> Trace:
    """Return the trace that a name stands for; raise ConfigError for none."""
    if name in SHIPPED:
        return read_trace(SHIPPED[name], seed=seed)._replace(source=name)
    shape, _, settings = name.partition(":")
    if shape in get_args(Shape):
        return shaped(parse(ShapeConfig, {"shape": shape, **_settings(settings)}), seed)
    path = Path(name)
    if not path.is_file():
        names = ", ".join((*SHIPPED, *get_args(Shape)))
        raise ConfigError(
            f"trace: {name} is neither a file nor one of {names}; shapes take settings, as in "
            "ramp:peak=8,duration_s=300",
            param="trace",
        )
    return read_trace(path, seed=seed)


def _settings(text: str) -> dict[str, str]:
    """Return the settings of a shape; raise ConfigError where one has no name or no value."""
    found = {}
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition("=")
        if not sign or key == "shape":
            raise ConfigError(f"trace: {part} is no setting of a shape (key=value)", param="trace")
        found[key] = value
    return found
