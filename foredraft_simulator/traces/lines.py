"""A trace's file line by line, bounded, and its values, each fault with file, line and field."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from foredraft.errors import ConfigError

# Mooncake's longest lines have the hashes of 1 M tokens in blocks of 512.
MAX_LINE_BYTES = 1 << 16
MAX_REQUESTS = 6_000_000
MAX_TOKENS = 10_000_000
# Longer than any trace, by which a stamp of another unit is seen.
MAX_SPAN_S = 366 * 86_400.0


class Line(NamedTuple):
    """A line of a file, without its end."""

    path: Path
    number: int
    text: str

    def fault(self, field: str, what: str) -> ConfigError:
        """Return the error that names the place."""
        return ConfigError(f"{self.path}:{self.number}: {field}: {what}", param=field)

    def cells(self) -> list[str]:
        """Return the cells of a line of CSV."""
        try:
            return next(csv.reader([self.text], strict=True), [])
        except csv.Error as error:
            raise self.fault("line", f"not CSV: {error}") from None

    def record(self, header: list[str]) -> dict[str, str]:
        """Return the cells by the header's names."""
        cells = self.cells()
        if len(cells) != len(header):
            raise self.fault("line", f"{len(cells)} cells, and the header has {len(header)}")
        return dict(zip(header, cells, strict=True))

    def tokens(self, values: Mapping[str, object], field: str) -> int:
        """Return a number of tokens, 0 to MAX_TOKENS."""
        value = values.get(field)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
            raise self.fault(field, f"{value!r:.40} is no number of tokens, 0 to {MAX_TOKENS}")
        return value

    def seconds(self, values: Mapping[str, object], field: str, unit_s: float = 1.0) -> float:
        """Return a time in seconds, given in units of unit_s."""
        value = values.get(field)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.fault(field, f"{value!r:.40} is no number") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fault(field, f"{value!r:.40} is no number")
        # An integer may be too large for a float.
        if (isinstance(value, int) and abs(value) > 1 << 53) or not math.isfinite(value):
            raise self.fault(field, f"{value!r:.40} is no time")
        return value * unit_s


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines that are not empty; raise ConfigError where the file cannot be read."""
    try:
        with open(path, "rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                line = Line(path, number, "")
                if len(raw) > MAX_LINE_BYTES:
                    raise line.fault("line", f"longer than {MAX_LINE_BYTES} bytes")
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise line.fault("line", "not UTF-8") from None
                if "\0" in text:
                    raise line.fault("line", "has a byte 0")
                if text:
                    yield line._replace(text=text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="trace") from None
