"""SmolLM2-135M-Instruct with its drafter, as `foredraft serve` starts them, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tokenizers import Tokenizer

from deployments.config import CHAT_FILE, ServeFile, read
from deployments.serve.cluster import RunningCluster, running
from foredraft.chat_template import read_chat_template
from foredraft.client import CompletionClient
from foredraft.gguf.smollm2 import NAME, smollm2_target
from foredraft_cli.prompts.held_out import sampling
from foredraft_cli.prompts.sets import chat_ids, prompt_sets

TOKENS = 48
TARGET = smollm2_target()

pytestmark = pytest.mark.skipif(TARGET is None, reason="foredraft fetch could not bring the target")


@pytest.fixture(scope="module")
def chat(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The chat pair beside the embedded one, on its Ray and its port."""
    values = read(CHAT_FILE).model_dump()
    values["applications"][0] |= {"name": "chat", "route_prefix": "/chat"}
    values["http_options"]["port"] = urlsplit(cluster.url).port
    with running(ServeFile.model_validate(values)) as started:
        yield started


async def test_it_answers_in_sense_and_ends(chat: RunningCluster) -> None:
    assert TARGET is not None
    assert chat.health["drafter"]["refused"] is None and chat.refusal is None
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
    asked = chat_ids("What is the capital of France?", tokenizer, read_chat_template(TARGET))
    async with CompletionClient(chat.url) as client:
        answer = await client.complete(asked, sampling(0.0, 0), TOKENS)
    assert "Paris" in tokenizer.decode(answer.tokens)
    assert answer.tokens[-1] == tokenizer.token_to_id("<|im_end|>")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_drafts_change_no_token(chat: RunningCluster, temperature: float) -> None:
    assert TARGET is not None
    sets, _ = prompt_sets(TARGET / "tokenizer.json", 8192, 2, TOKENS)
    prompts = [prompt for each in sets for prompt in each.prompts]
    async with CompletionClient(chat.url) as client:
        # Whether or not they pay on this machine.
        always: dict[str, Any] = {"adl": {"name": "fixed", "k": 12}}
        for options in (always, always | {"verifier_led_rounds": 0}):
            both = [
                (
                    client.complete(prompt, sampling(temperature, at), TOKENS, enabled=False),
                    client.complete(prompt, sampling(temperature, at), TOKENS, **options),
                )
                for at, prompt in enumerate(prompts)
            ]
            for pair in both:
                plain, fast = await asyncio.gather(*pair)
                assert plain.tokens == fast.tokens
                assert fast.report["num_accepted_draft_tokens"] > 0
                assert fast.report["drafter_attaches"] == 1


def test_it_is_named_after_its_target(chat: RunningCluster) -> None:
    assert read(CHAT_FILE).application.args.name == NAME
