"""What a round comes to when the target has already chosen the next tokens. Pure.

While a verifier waits for a session's next round it decodes on. The tokens it finds are the
target's own, so a draft that arrives later is first walked along them, for nothing; only what hangs
below the last of them is left to be verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foredraft.decoding.tree import ROOT, explicit


class Walk(NamedTuple):
    """How far a draft agrees with tokens that are known.

    walked are the draft's nodes that stand for known tokens, from the root on; beyond the known
    tokens after them, none of them drafted. left are the nodes still to be verified, with their
    parents among themselves: those below the last walked one, none if there are tokens beyond.
    """

    walked: tuple[int, ...]
    beyond: tuple[int, ...]
    left: tuple[int, ...]
    parents: tuple[int, ...]


def walk(draft: Sequence[int], parents: Sequence[int], known: Sequence[int]) -> Walk:
    """Return where a draft, of a tree or a path, stands after the known tokens."""
    tree = explicit(parents, len(draft))
    walked: list[int] = []
    at = ROOT
    for node, parent in enumerate(tree):
        if len(walked) < len(known) and parent == at and draft[node] == known[len(walked)]:
            walked.append(node)
            at = node
    beyond = tuple(known[len(walked) :])
    place = {at: ROOT}
    left: list[int] = []
    for node, parent in enumerate(tree):
        if not beyond and parent in place:
            place[node] = len(left)
            left.append(node)
    return Walk(tuple(walked), beyond, tuple(left), tuple(place[tree[node]] for node in left))
