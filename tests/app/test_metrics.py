"""What requests report, summed, is what the counters have."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from deployments.serve.cluster import RunningCluster
from tests.support.cluster import post

PROMPTS = (
    "def area(width, height):\n",
    "class Stack:\n    def push(self",
    "import os\n\n\ndef main",
)
# By the key of a request's report.
COUNTERS = {
    "num_spec_steps": "foredraft_spec_decode_num_drafts_total",
    "num_ngram_steps": "foredraft_spec_decode_num_ngram_drafts_total",
    "num_draft_tokens": "foredraft_spec_decode_num_draft_tokens_total",
    "num_bought_tokens": "foredraft_spec_decode_num_bought_tokens_total",
    "num_accepted_draft_tokens": "foredraft_spec_decode_num_accepted_tokens_total",
    "num_rounds": "foredraft_rounds_total",
    "drafter_attaches": "foredraft_drafter_attaches_total",
    "verifier_moves": "foredraft_verifier_moves_total",
}


async def scraped(cluster: RunningCluster) -> Counter[str]:
    """Each series' values, over its labels."""
    async with aiohttp.ClientSession() as http, http.get(f"{cluster.url}/metrics") as answer:
        text = await answer.text()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value
            for label in ("origin", "finished_reason"):
                if label in sample.labels:
                    found[f"{sample.name} {sample.labels[label]}"] += sample.value
    return found


async def test_requests_sums_are_the_counters_over_a_mixed_load(cluster: RunningCluster) -> None:
    before = await scraped(cluster)
    asked = [
        {
            "prompt": prompt,
            "max_tokens": 24 + 8 * number,
            "temperature": temperature,
            "seed": number,
            "n": 1 + number % 2,
            "stop": ["\n\n"] if number % 3 == 0 else None,
            "speculative": {"enabled": number % 4 != 3},
        }
        for number, (prompt, temperature) in enumerate(
            (prompt, temperature) for prompt in PROMPTS for temperature in (0, 0.8, 1.2)
        )
    ]
    refused = {"prompt": PROMPTS[0], "max_tokens": 1 << 19}
    answers = await asyncio.gather(*(post(cluster, body) for body in [*asked, refused]))
    assert [status for status, _ in answers] == [200] * len(asked) + [400]
    sums: Counter[str] = Counter()
    for body, (_, answer) in zip(asked, answers, strict=False):
        reports = answer["metrics"]["speculative_decoding"]
        for report in reports if isinstance(reports, list) else [reports]:
            for key, name in COUNTERS.items():
                sums[name] += report[key]
            for origin, count in report["origins"].items():
                sums[f"foredraft_generation_tokens_total {origin}"] += count
            sums["foredraft_draft_wait_seconds_total"] += report["drafting_s"]
        for choice in answer["choices"]:
            reason = choice["finish_reason"]
            sums[f"foredraft_request_success_total {reason}"] += 1
        sums["foredraft_prompt_tokens_total"] += answer["usage"]["prompt_tokens"] * body["n"]
    after = await scraped(cluster)
    for name, value in sums.items():
        assert abs(after[name] - before[name] - value) < 1e-6, name
    # The refused one ended, too.
    sessions = sum(len(answer["choices"]) for _, answer in answers[:-1]) + 1
    for name in ("foredraft_requests_total", "foredraft_e2e_request_latency_seconds_count"):
        assert after[name] - before[name] == sessions
    accepted = after["foredraft_spec_decode_num_accepted_tokens_total"]
    assert accepted == after["foredraft_spec_decode_num_accepted_tokens_per_pos_total"]
