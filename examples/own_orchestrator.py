"""An orchestrator of one's own, over the two gRPC services: draft, verify, commit.

    python -m drafter_service --config examples/drafter.yaml &
    python -m verifier_service --config examples/verifier.yaml &
    python examples/own_orchestrator.py

It prints the token ids that a server gives for the same prompt, sampling and seed: the verifier
decides every token, whoever asks. A real orchestrator (orchestrator/) also adapts the draft length,
drafts ahead of the verdict, and survives the loss of either service.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tokenizers import Tokenizer

from drafter_service.client import DrafterClient
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftOpen, Propose, Round, VerifyOpen
from foredraft.types import Base, Proposal, SamplingParams
from verifier_service.client import VerifierClient

PROMPT, MAX_TOKENS, K = "def mean(values):", 48, 12
SAMPLING = SamplingParams(temperature=0.8, seed=1)
TOKENIZER = os.environ.get("TOKENIZER", "models/embedded/tokenizer")


async def decode(drafter: DrafterClient, verifier: VerifierClient, prompt: list[int]) -> list[int]:
    """Return the tokens that follow the prompt."""
    committed, new, end = list(prompt), list(prompt), len(prompt) + MAX_TOKENS
    drafts = await drafter.open(DraftOpen("own", tuple(prompt), SAMPLING, Proposal.TREE, end))
    stops = drafts.opened.model.eos_token_ids
    verdicts = await verifier.open(
        VerifyOpen("own", tuple(prompt), SAMPLING, MAX_TOKENS, K, stop_token_ids=stops)
    )
    new, named = [], len(prompt)  # what the drafter does not know yet, and what it knows
    number = 0
    while len(committed) < end and not (stops and committed[-1] in stops):
        base = Base("own", number, len(committed), hash_prefix(committed))
        # A round commits one token more than it accepts of the draft.
        k = min(K, end - len(committed) - 1)
        asked = Round(base)
        if k > 0:
            block = await drafts.propose(Propose(base, named, tuple(new), k))
            asked = Round(base, block.tokens, parents=block.parents, q=block.q)
            named = len(committed)
        verdict = await verdicts.verify(asked)
        new = [asked.draft[node] for node in verdict.kept] + list(verdict.next_tokens)
        committed += new
        number += 1
    await drafts.close()
    await verdicts.close()
    return committed[len(prompt) : end]


async def main() -> None:
    """Decode one prompt and print it."""
    tokenizer = Tokenizer.from_file(str(Path(TOKENIZER) / "tokenizer.json"))
    drafter = DrafterClient(os.environ.get("DRAFTER", "127.0.0.1:8101"))
    verifier = VerifierClient(os.environ.get("VERIFIER", "127.0.0.1:8102"))
    token_ids = await decode(drafter, verifier, tokenizer.encode(PROMPT).ids)
    await drafter.close()
    await verifier.close()
    print(PROMPT + tokenizer.decode(token_ids))
    print(*token_ids)


if __name__ == "__main__":
    asyncio.run(main())
