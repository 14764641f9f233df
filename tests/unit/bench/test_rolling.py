"""What the rolling bench writes of failures."""

from __future__ import annotations

import json
from collections import Counter

from bench.rolling.load import Tally
from bench.rolling.run import Done, Rolled, as_json, as_markdown, summary


def test_failures_are_written_by_what_was_seen() -> None:
    tally = Tally(5, 3, 2, 1.5, Counter({"ValueError: 503": 1}))
    rolled = Rolled([Done("a drafter", 1.0, {"drafter": "replaced"}, 5, 1)], tally)
    found = json.loads(json.dumps(as_json(rolled)))
    assert found["failed"] == {"ValueError: 503": 1} and found["different"] == 1
    assert "5 requests (2 streams): 1 failed, 1 different" in as_markdown(rolled)
    assert summary(rolled.changes[0]) == "a drafter: 1.0 s, 5 requests, 1 failed"
