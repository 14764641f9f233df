"""The official OpenAI client against a running server (pip install openai).

The same request with and without drafts gives the same text.
"""

from __future__ import annotations

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("FOREDRAFT_URL", "http://127.0.0.1:8000") + "/v1", api_key="none"
)
model = client.models.list().data[0].id


def complete(drafts: bool) -> tuple[str, int]:
    """Return the text and how many of its tokens were drafted."""
    answer = client.completions.create(
        model=model,
        prompt="def mean(values):",
        max_tokens=64,
        temperature=0.8,
        seed=1,
        # What is Foredraft's own travels beside OpenAI's fields, in both directions.
        extra_body={"speculative": {"enabled": drafts}},
    )
    report = (answer.model_extra or {})["metrics"]["speculative_decoding"]
    return answer.choices[0].text, report["num_accepted_draft_tokens"]


text, drafted = complete(drafts=True)
plain, _ = complete(drafts=False)
print(text)
print(f"{drafted} tokens were drafted")
print("identical:", text == plain)
