"""The official OpenAI client against a running server (pip install openai).

The same request with and without drafts: the text is the same, the time is not.
"""

from __future__ import annotations

import os
import time

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("FOREDRAFT_URL", "http://127.0.0.1:8000") + "/v1", api_key="none"
)
model = client.models.list().data[0].id
texts = []
for drafts in (True, False):
    start = time.perf_counter()
    answer = client.completions.create(
        model=model,
        prompt="def mean(values):",
        max_tokens=64,
        temperature=0.8,
        seed=1,
        # What is Foredraft's own travels beside OpenAI's fields.
        extra_body={"speculative": {"enabled": drafts}},
    )
    texts.append(answer.choices[0].text)
    print(f"drafts {'on ' if drafts else 'off'}: {1e3 * (time.perf_counter() - start):.0f} ms")
print(texts[0])
print("identical:", texts[0] == texts[1])
