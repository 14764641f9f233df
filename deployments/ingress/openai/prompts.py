"""A request's prompts as token ids."""

from __future__ import annotations

from functools import partial

from tokenizers import Tokenizer

from foredraft.errors import InvalidRequest
from foredraft.limits import check_tokens
from foredraft.threads import in_thread


class Prompts:
    """Reads prompts for a target whose texts have at most max_len tokens."""

    def __init__(self, tokenizer: Tokenizer, max_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.get_vocab_size()
        # At least one token of the answer must fit, too.
        self._most = max_len - 1
        # No longer text can fit, so it is not even tokenised.
        self._longest = max_len * max(map(len, tokenizer.get_vocab()))

    async def tokens(
        self, prompt: str | list[int], *, special: bool = True, field: str = "prompt"
    ) -> tuple[int, ...]:
        """Return the prompt's token ids; raise InvalidRequest naming the field.

        A text is tokenised in a thread, so that no other request waits for it; special is
        whether the tokenizer adds its special tokens.
        """
        if isinstance(prompt, str):
            self._check(prompt, field)
            # Of the tokenizer's calls, only those for batches let other threads run meanwhile.
            encode = partial(self._tokenizer.encode_batch_fast, add_special_tokens=special)
            [found] = await in_thread(partial(encode, [prompt]))
            tokens = tuple(found.ids)
        else:
            check_tokens(field, prompt, self._vocab_size)
            tokens = tuple(prompt)
        if not tokens:
            raise InvalidRequest(f"{field} is empty", param=field)
        if len(tokens) > self._most:
            raise InvalidRequest(
                f"{field} has {len(tokens)} tokens; the model takes at most {self._most} before "
                "an answer",
                param=field,
            )
        return tokens

    def _check(self, prompt: str, field: str) -> None:
        if len(prompt) > self._longest:
            raise InvalidRequest(
                f"{field} has {len(prompt)} characters; {self._longest} are the most that can fit "
                "the model's context",
                param=field,
            )
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"{field} is no valid Unicode", param=field) from None
