"""A request's prompts as token ids."""

from __future__ import annotations

import asyncio

from tokenizers import Tokenizer

from foredraft.errors import InvalidRequest
from foredraft.limits import check_tokens


class Prompts:
    """Reads prompts for a target whose texts have at most max_len tokens."""

    def __init__(self, tokenizer: Tokenizer, max_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.get_vocab_size()
        # No longer text can fit, so it is not even tokenised.
        self._longest = max_len * max(map(len, tokenizer.get_vocab()))

    async def tokens(self, prompt: str | list[int]) -> tuple[int, ...]:
        """Return the prompt's token ids; raise InvalidRequest naming prompt.

        A text is tokenised in a thread, so that no other request waits for it.
        """
        if isinstance(prompt, str):
            self._check(prompt)
            # Of the tokenizer's calls, only those for batches let other threads run meanwhile.
            [found] = await asyncio.to_thread(self._tokenizer.encode_batch_fast, [prompt])
            tokens = tuple(found.ids)
        else:
            check_tokens("prompt", prompt, self._vocab_size)
            tokens = tuple(prompt)
        if not tokens:
            raise InvalidRequest("prompt is empty", param="prompt")
        return tokens

    def _check(self, prompt: str) -> None:
        if len(prompt) > self._longest:
            raise InvalidRequest(
                f"prompt has {len(prompt)} characters; {self._longest} are the most that can fit "
                "the model's context",
                param="prompt",
            )
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("prompt is no valid Unicode", param="prompt") from None
