"""Which models fit together, and drafts from vocabularies that are padded differently. Pure."""

from __future__ import annotations

from dataclasses import replace

from foredraft.decoding.tree import ROOT, explicit
from foredraft.messages import DraftBlock
from foredraft.types import Candidates, Guess, ModelInfo


def same_target(one: ModelInfo, other: ModelInfo) -> bool:
    """Return whether two verifiers give the same tokens: the same weights, both exact or neither.

    How far one that is not exact strays was measured, and is never the same twice.
    """
    exact = (one.numerics == "exact") == (other.numerics == "exact")
    return exact and replace(one, numerics="") == replace(other, numerics="")


def why_incompatible(drafter: ModelInfo, target: ModelInfo) -> str | None:
    """Return why a drafter cannot serve a target, None if it can.

    With one tokenizer, sizes differ by padding: the token ids in use are the same. What a drafter
    takes for the end of a text must end the target's.
    """
    if drafter.tokenizer_hash != target.tokenizer_hash:
        return f"drafter {drafter.name} has another tokenizer than target {target.name}"
    needed = (drafter.features_hash, drafter.features_width)
    if drafter.features_hash and needed != (target.features_hash, target.features_width):
        return f"drafter {drafter.name} needs features that target {target.name} does not have"
    if drafter.vocab_size != target.vocab_size and not target.tokenizer_hash:
        return f"drafter {drafter.name} has another vocabulary than target {target.name}"
    ends, known = set(drafter.eos_token_ids), set(target.eos_token_ids)
    if ends and known and not ends <= known:
        return (
            f"drafter {drafter.name} ends texts with {sorted(ends)}, target {target.name} with"
            f" {sorted(known)}"
        )
    return None


def drop_unknown_tokens(block: DraftBlock, vocab_size: int) -> DraftBlock:
    """Return a block without the tokens from vocab_size on, and without what follows them.

    Nor are they among what a token was drawn from: given that it is none of them, a token was drawn
    from the others' shares. Whether a block ends there depends on what came before, and on chance
    that nothing else depends on, so the rules that read q stay exact.
    """
    guessed = (guess.token for guess in block.guesses)
    drawn = (token for each in block.q for token in each.tokens)
    if max((*block.tokens, *guessed, *drawn), default=0) < vocab_size:
        return block
    parents = explicit(block.parents, len(block.tokens))
    place = {ROOT: ROOT}
    kept: list[int] = []
    for node, token in enumerate(block.tokens):
        if token < vocab_size and parents[node] in place:
            place[node] = len(kept)
            kept.append(node)
    return replace(
        block,
        tokens=tuple(block.tokens[node] for node in kept),
        parents=tuple(place[parents[node]] for node in kept) if block.parents else (),
        generated_len=min(block.generated_len, len(kept)),
        guesses=tuple(
            Guess(place[node], token, probability)
            for node, token, probability in block.guesses
            if node in place and token < vocab_size
        ),
        q=tuple(_known(block.q[node], vocab_size) for node in kept) if block.q else (),
        expected=tuple(block.expected[node] for node in kept) if block.expected else (),
    )


def _known(drawn_from: Candidates, vocab_size: int) -> Candidates:
    shares = zip(drawn_from.tokens, drawn_from.weights, strict=True)
    kept = [(token, weight) for token, weight in shares if token < vocab_size]
    return Candidates(tuple(token for token, _ in kept), tuple(weight for _, weight in kept))
