"""The file of what a measurement found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.commands.report import write


class Figure(NamedTuple):
    value: float
    low: float


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    file = tmp_path / "made" / "found.json"
    rows = [{"ratio": Figure(1.5, float("-inf")), "texts": 3, "way": "plain", "same": True}]
    write(file, {"rows": rows, "p": float("nan")})

    def not_json(word: str) -> None:
        pytest.fail(word)

    found = json.loads(file.read_text(), parse_constant=not_json)
    assert found["p"] is None and found["machine"]
    assert found["rows"] == [{"ratio": [1.5, None], "texts": 3, "way": "plain", "same": True}]
