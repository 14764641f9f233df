"""A stream with `"detail": true`: events of committed tokens, each with its origin.

kept: drafted and accepted; correction: the target's token in place of a wrong draft token; bonus:
the target's token after a draft that was accepted whole; plain: no draft.
"""

from __future__ import annotations

import json
import os
import urllib.request

url = os.environ.get("FOREDRAFT_URL", "http://127.0.0.1:8000") + "/v1/completions"
body = {
    "prompt": "def mean(values):",
    "max_tokens": 48,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "speculative": {"detail": True},
}
request = urllib.request.Request(
    url, json.dumps(body).encode(), {"content-type": "application/json"}
)
with urllib.request.urlopen(request) as events:
    for line in events:
        data = line.decode().strip().removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        event = json.loads(data)
        for choice in event["choices"]:
            print(f"{choice['text']!r:60} {' '.join(choice['origins'])}")
        if event.get("usage"):
            report = event["metrics"]["speculative_decoding"]
            print(
                f"{event['usage']['completion_tokens']} tokens in {report['num_rounds']} rounds, "
                f"{report['num_accepted_draft_tokens']} of {report['num_draft_tokens']} "
                "draft tokens accepted"
            )
