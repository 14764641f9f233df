"""vLLM's drafts from Foredraft's drafter service: a backend for `method: custom_class`.

    vllm serve TARGET --speculative-config '{"method": "custom_class", "num_speculative_tokens": 8,
        "custom_proposer_backend": "foredraft_vllm.proposer.ForedraftProposer"}'

with FOREDRAFT_DRAFTER=host:port in the environment. vLLM verifies; its drafts are paths without
distributions, which its rejection sampling takes as one-hot. Any exception here would end vLLM's
engine: whatever goes wrong is an empty draft, by the deadline.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.rpc.token import token_in
from foredraft.types import Proposal
from foredraft_vllm.drafts import Drafts, LoopThread
from foredraft_vllm.rows import Rows

log = logging.getLogger(__name__)

_DEADLINE_MS = 20.0
# Beyond the deadline, for the loop's own work.
_MARGIN_S = 0.05


class ForedraftProposer:
    """Drafts for a batch of vLLM's; made from its configuration and the environment.

    FOREDRAFT_DRAFTER is the drafter's host:port, FOREDRAFT_PROPOSAL how it drafts paths (argmax),
    FOREDRAFT_DEADLINE_MS how long a call may take (20), FOREDRAFT_TOKEN_FILE has the token that the
    drafter asks for.
    """

    def __init__(self, vllm_config: Any, environment: Mapping[str, str] = os.environ) -> None:
        self._count = int(vllm_config.speculative_config.num_speculative_tokens)
        self._max_len = int(vllm_config.model_config.max_model_len)
        vocab_size = int(vllm_config.model_config.get_vocab_size())
        address = environment.get("FOREDRAFT_DRAFTER", "127.0.0.1:7001")
        proposal = Proposal(environment.get("FOREDRAFT_PROPOSAL", Proposal.ARGMAX))
        self._deadline_s = float(environment.get("FOREDRAFT_DEADLINE_MS", _DEADLINE_MS)) / 1e3
        token_file = environment.get("FOREDRAFT_TOKEN_FILE")
        token = token_in(Path(token_file) if token_file else None)
        self._rows = Rows()
        self._loop = LoopThread()
        self._drafts = self._loop.call(
            _made(address, proposal, vocab_size, self._max_len, token), timeout_s=10
        )

    def load_model(self, *_: Any, **__: Any) -> None:
        """Load nothing: the model is the drafter's."""

    def dummy_run(self, *_: Any, **__: Any) -> None:
        """Run nothing: no memory of vLLM's is used."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a draft for each row of the batch, [] where there is none in time.

        A row that sampled nothing is still reading its prompt. Rows of token_ids_cpu hold a text,
        num_tokens_no_spec tokens of it. Never raises.
        """
        try:
            return self._propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        except Exception:
            log.exception("no drafts")
            return [[] for _ in sampled_token_ids]

    def close(self) -> None:
        """End the stream."""
        self._loop.call(self._drafts.close(), timeout_s=10)
        self._loop.stop()

    def _propose(
        self, sampled: Sequence[Sequence[int]], lengths: Any, tokens: Any
    ) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in sampled]
        rows = [
            (place, tokens[place, : int(lengths[place])])
            for place, new in enumerate(sampled)
            if len(new) and int(lengths[place]) < self._max_len
        ]
        texts = self._rows.matched(rows)
        work = self._drafts.behind(texts, self._rows.forgotten(), self._count, self._deadline_s)
        found = self._loop.call(work, self._deadline_s + _MARGIN_S)
        for (place, text), draft in zip(rows, found, strict=True):
            drafts[place] = list(draft[: self._max_len - len(text)])
        return drafts


async def _made(
    address: str, proposal: Proposal, vocab_size: int, max_len: int, token: str
) -> Drafts:
    return Drafts(address, proposal, vocab_size, max_len, token)
