"""Draft trees: tokens that each follow a parent, -1 for the prefix. No parents at all mean a path.

A parent stands before its child, so node order is a topological order. Siblings are in the
drafter's order of trust. Pure functions of (tokens, parents).
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.errors import InvalidRequest

ROOT = -1


def check_parents(name: str, parents: Sequence[int], count: int) -> None:
    """Raise InvalidRequest naming the field unless parents are unsaid or a tree of count nodes."""
    if parents and not is_tree(parents, count):
        raise InvalidRequest(
            f"{name} must be empty, or name for each token an earlier one or -1", param=name
        )


def is_tree(parents: Sequence[int], count: int) -> bool:
    """Return whether every one of count nodes follows the root or a node before it."""
    return len(parents) == count and all(ROOT <= p < i for i, p in enumerate(parents))


def is_path(parents: Sequence[int]) -> bool:
    """Return whether every node follows the one before it."""
    return all(parent == i - 1 for i, parent in enumerate(parents))


def explicit(parents: Sequence[int], count: int) -> Sequence[int]:
    """Return the parents of count nodes, spelt out where they form a path."""
    return parents or range(ROOT, count - 1)


def depths(parents: Sequence[int]) -> list[int]:
    """Return each node's distance from the prefix: 1 for the root's children."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == ROOT else found[parent] + 1)
    return found


def branch(parents: Sequence[int], node: int) -> list[int]:
    """Return the nodes from the root's child down to node, both included."""
    found = []
    while node != ROOT:
        found.append(node)
        node = parents[node]
    return found[::-1]


def is_branch(nodes: Sequence[int], parents: Sequence[int]) -> bool:
    """Return whether nodes lead from a root's child downwards, each one the next one's parent."""
    at = ROOT
    for node in nodes:
        if not 0 <= node < len(parents) or parents[node] != at:
            return False
        at = node
    return True


def first_branch(parents: Sequence[int]) -> list[int]:
    """Return the nodes met when always going to the first child."""
    found: list[int] = []
    for node, parent in enumerate(parents):
        if parent == (found[-1] if found else ROOT):
            found.append(node)
    return found


def follow(tokens: Sequence[int], parents: Sequence[int], text: Sequence[int]) -> int | None:
    """Return the node that text leads to from the root, ROOT if it is empty, None if it leaves."""
    at, left = ROOT, list(text)
    for node, parent in enumerate(parents):
        if left and parent == at and tokens[node] == left[0]:
            at = node
            del left[0]
    return None if left else at


def below(parents: Sequence[int], node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the (nodes, parents) of the tree that hangs from node, in the same order."""
    place = {node: ROOT}
    kept: list[int] = []
    for i, parent in enumerate(parents):
        if parent in place:
            place[i] = len(kept)
            kept.append(i)
    return tuple(kept), tuple(place[parents[i]] for i in kept)
