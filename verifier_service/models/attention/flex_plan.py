"""Passes of few shapes: which row stands where, and what it sees, as arrays (attention_flex.py).

The rows of each session are cut into tiles of one width. A tile has the table of its session's
blocks and, for each row, the cache rows that it sees: those from `first` up to `root`, and of the
tree after these its own branch, as bits. A row of a path is its own tree of no nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foredraft.decoding.tree import branch, depths
from foredraft.limits import MAX_DRAFT
from verifier_service.models.attention.reference import Rows
from verifier_service.models.device_arrays import Field

if TYPE_CHECKING:
    import numpy.typing as npt

# The last token and a draft of 2^n, or a part of a long prefill.
WIDTHS = (1, 5, 9, 17, 33, 64)
MOST_TILES = 64
WORDS = -(-MAX_DRAFT // 32)


class PassShape(NamedTuple):
    """The rows of a pass, and the tiles and their width that hold them, each with some filler."""

    rows: int
    tiles: int
    width: int


def tiles_of(counts: Sequence[int]) -> tuple[int, int]:
    """Return how many tiles, a power of two, hold these numbers of rows, and their width."""
    longest = max(counts)
    width = next((width for width in WIDTHS if width >= longest), WIDTHS[-1])
    return _power_of_two(sum(-(-count // width) for count in counts)), width


def shape_of(counts: Sequence[int]) -> PassShape:
    """Return the least shape that holds sessions of these numbers of rows.

    Its rows are the width times a power of two, so they are at most twice as many as needed, or one
    tile's.
    """
    tiles, width = tiles_of(counts)
    return PassShape(width * _power_of_two(-(-sum(counts) // width)), tiles, width)


def shapes(rows: int) -> Iterator[tuple[PassShape, list[int]]]:
    """Return every shape of up to so many rows and MOST_TILES tiles, each with a batch of it."""
    narrower = dict(zip(WIDTHS, (0, *WIDTHS), strict=False))
    for width in WIDTHS:
        tiles = 1
        while tiles <= MOST_TILES:
            filled = width
            while filled <= min(rows, width * tiles):
                shape = PassShape(filled, tiles, width)
                batch = _example(shape, narrower[width])
                if batch is not None:
                    yield shape, batch
                filled *= 2
            tiles *= 2


def _example(shape: PassShape, narrower: int) -> list[int] | None:
    """Return the rows of the fewest sessions that have a shape, None if none has it."""
    sessions = shape.tiles // 2 + 1 if shape.tiles > 1 else 1
    longest = min(shape.width, shape.rows - (sessions - 1))
    if longest <= narrower:
        return None
    batch, left = [longest], shape.rows - longest
    for others in reversed(range(sessions - 1)):
        batch.append(min(shape.width, left - others))
        left -= batch[-1]
    return batch


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def fields(
    shape: PassShape, pool: int, table: int, windows: Sequence[int | None]
) -> dict[str, Field]:
    """Return what arrays a plan has, for a pool of blocks, tables of so many, and kinds of layers.

    slot: where a row stands in the tiles; row: which row stands in a slot; kept: the pool's row for
    a row's KV; place: a block's number in the texts that have it, -1 for none; table: the blocks of
    a tile's session; root: see above. For window number i, seen{i} are the blocks of which a tile
    sees anything and count{i} how many, first{i} and branch{i} what a row sees.
    """
    rows, tiles, width = shape
    found = {
        "slot": Field((rows,), wide=True),
        "row": Field((tiles * width,), wide=True),
        "kept": Field((rows,), wide=True),
        "place": Field((pool,)),
        "table": Field((tiles, table)),
        "root": Field((tiles, width)),
    }
    for i in range(len(windows)):
        found[f"seen{i}"] = Field((tiles, table))
        found[f"count{i}"] = Field((tiles,))
        found[f"first{i}"] = Field((tiles, width))
        found[f"branch{i}"] = Field((tiles, width, WORDS))
    return found


def fill(
    arrays: Mapping[str, npt.NDArray[Any]],
    batch: Sequence[Rows],
    block_tokens: int,
    windows: Sequence[int | None],
) -> None:
    """Write a batch into a plan's arrays, which are zero.

    The pool's last block belongs to no session: filler rows leave their KV there. Raise ValueError
    if a block has two positions, or rows are beyond their table.
    """
    arrays["place"].fill(-1)
    arrays["kept"].fill((len(arrays["place"]) - 1) * block_tokens)
    width = arrays["root"].shape[1]
    tile = 0
    for rows in batch:
        last = tile - (-rows.rows // width)
        _fill_session(arrays, rows, tile * width, block_tokens)
        for i, window in enumerate(windows):
            _fill_sight(arrays, rows, range(tile, last), block_tokens, i, window)
        tile = last


def _fill_session(
    arrays: Mapping[str, npt.NDArray[Any]], rows: Rows, slot: int, block_tokens: int
) -> None:
    """Write where a session's rows stand, from a slot on, and where their KV goes."""
    width, count, end = arrays["root"].shape[1], rows.rows, rows.start + rows.rows
    batched, slots = slice(rows.first, rows.first + count), slice(slot, slot + count)
    arrays["slot"][batched] = np.arange(slot, slot + count)
    arrays["row"][slots] = np.arange(rows.first, rows.first + count)
    table = np.array(rows.blocks[: -(-end // block_tokens)])
    if len(table) > arrays["table"].shape[1] or len(table) * block_tokens < end:
        raise ValueError(f"{end} rows in {len(table)} of {arrays['table'].shape[1]} blocks")
    places, numbers = arrays["place"][table], np.arange(len(table))
    if np.any((places != -1) & (places != numbers)):
        raise ValueError("a block stands at two places of texts")
    arrays["place"][table] = numbers
    at = np.arange(rows.start, end)
    arrays["kept"][batched] = table[at // block_tokens] * block_tokens + at % block_tokens
    arrays["table"][slot // width : -(-(slot + count) // width), : len(table)] = table
    mutual = rows.start + rows.mutual
    seen = np.where(at < mutual, mutual, at + 1)
    arrays["root"].reshape(-1)[slots] = np.minimum(seen, end - len(rows.parents))


def _fill_sight(
    arrays: Mapping[str, npt.NDArray[Any]],
    rows: Rows,
    tiles: range,
    block_tokens: int,
    number: int,
    window: int | None,
) -> None:
    """Write what a session's rows see in layers of a window, None for all, in its tiles."""
    width, count, end = arrays["root"].shape[1], rows.rows, rows.start + rows.rows
    slot, nodes = tiles[0] * width, len(rows.parents)
    root = end - nodes
    positions = np.arange(rows.start, end)
    positions[count - nodes :] = root - 1 + np.array(depths(rows.parents), int)
    first = np.maximum(positions + 1 - (window or end), 0)
    arrays[f"first{number}"].reshape(-1)[slot : slot + count] = first
    branches = arrays[f"branch{number}"].reshape(-1, WORDS)
    for node in range(nodes):
        seen = branch(rows.parents, node)[-(window or nodes) :]
        bits = sum(1 << seen_node for seen_node in seen).to_bytes(4 * WORDS, "little")
        branches[slot + count - nodes + node] = np.frombuffer(bits, "<i4")
    for tile in tiles:
        begin = (tile - tiles[0]) * width
        # A window may begin after the tree's root: then the tree's blocks are all that is seen.
        low = min(*first[begin : begin + width], root) // block_tokens
        last = max(rows.start + begin + width, rows.start + rows.mutual)
        high = -(-min(last, end) // block_tokens)
        arrays[f"seen{number}"][tile, : high - low] = rows.blocks[low:high]
        arrays[f"count{number}"][tile] = high - low
