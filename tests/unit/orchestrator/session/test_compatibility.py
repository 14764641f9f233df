"""Vocabularies padded to different sizes: what the target does not know is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from foredraft.decoding.tree import branch, explicit, is_tree
from foredraft.messages import DraftBlock, DraftOpened, Propose
from foredraft.types import Base, Candidates, Guess
from orchestrator.session.compatibility import (
    drop_unknown_tokens,
    same_target,
    why_incompatible,
)
from tests.support.orchestrator.peers import (
    MODEL,
    VOCAB,
    ScriptedDrafter,
    ScriptedVerifier,
    request,
    true_block,
)
from tests.support.orchestrator.running import run

BASE = Base("s", 0, 1, 1)


def test_verifiers_of_other_weights_or_numerics_are_not_the_same() -> None:
    rough = replace(MODEL, numerics="tolerance 1e-05")
    assert same_target(MODEL, MODEL) and same_target(
        rough, replace(rough, numerics="tolerance 2e-05")
    )
    assert not same_target(MODEL, rough)
    assert not same_target(MODEL, replace(MODEL, weights_hash="another"))
    assert not same_target(MODEL, replace(MODEL, tokenizer_hash="another"))


GUESSES = (Guess(3, 5, 0.5), Guess(1, 7, 0.2), Guess(-1, 8, 0.1))


def test_a_path_is_cut_at_the_first_unknown_token() -> None:
    q = tuple(Candidates((token,), (1,)) for token in (1, 2, 9, 3))
    block = DraftBlock(BASE, (1, 2, 9, 3), generated_len=4, guesses=GUESSES, q=q)
    assert drop_unknown_tokens(block, 9) == replace(
        block, tokens=(1, 2), generated_len=2, guesses=GUESSES[1:], q=q[:2]
    )
    assert drop_unknown_tokens(block, 10) is block
    unknown = replace(block, guesses=(Guess(3, 10, 1.0), *GUESSES))
    assert drop_unknown_tokens(unknown, 10) == block


def test_what_a_token_was_drawn_from_is_cut_to_known_tokens() -> None:
    """A verifier refuses a round with others; their shares are gone for the rest."""
    q = (Candidates((1, 9, 2), (4, 8, 4)), Candidates((2,), (16,)))
    block = DraftBlock(BASE, (1, 2), generated_len=2, q=q)
    assert drop_unknown_tokens(block, 10) is block
    cut = drop_unknown_tokens(block, 9)
    assert cut.tokens == (1, 2) and cut.q == (Candidates((1, 2), (4, 4)), q[1])


@given(st.data())
def test_a_trees_branches_are_cut_where_they_become_unknown(data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, 9), max_size=8).map(tuple))
    parents = tuple(data.draw(st.integers(-1, i - 1)) for i in range(len(tokens)))
    cut = drop_unknown_tokens(DraftBlock(BASE, tokens, parents), 7)

    def branches(tokens: Sequence[int], parents: Sequence[int]) -> list[list[int]]:
        tree = explicit(parents, len(tokens))
        return [[tokens[at] for at in branch(tree, node)] for node in range(len(tokens))]

    assert is_tree(explicit(cut.parents, len(cut.tokens)), len(cut.tokens))
    assert branches(cut.tokens, cut.parents) == [
        known for known in branches(tokens, parents) if max(known) < 7
    ]


def test_sizes_may_differ_where_the_tokenizer_is_the_same() -> None:
    wider = replace(MODEL, vocab_size=VOCAB + 14)
    assert why_incompatible(wider, MODEL) is None
    assert "tokenizer" in (why_incompatible(replace(MODEL, tokenizer_hash="other"), MODEL) or "")
    nameless = replace(MODEL, tokenizer_hash="")
    assert "vocabulary" in (why_incompatible(replace(wider, tokenizer_hash=""), nameless) or "")


def test_what_ends_a_drafters_texts_must_end_the_targets() -> None:
    ending = replace(MODEL, eos_token_ids=(7, 3))
    assert why_incompatible(replace(MODEL, eos_token_ids=(3,)), ending) is None
    assert why_incompatible(MODEL, ending) is None and why_incompatible(ending, MODEL) is None
    assert why_incompatible(ending, replace(MODEL, eos_token_ids=(3,))) == (
        "drafter scripted ends texts with [3, 7], target scripted with [3]"
    )


async def test_a_drafter_with_a_wider_vocabulary_drafts_and_loses_only_padding() -> None:
    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        padding = (*block.tokens[:-1], VOCAB + 3)
        return replace(block, tokens=padding) if index % 2 else block

    opened = DraftOpened(replace(MODEL, vocab_size=VOCAB + 14), 16)
    _, report = await run(request(), ScriptedDrafter(script, opened), ScriptedVerifier())
    assert report.drafter_attaches == 1
    assert report.mat > 3
