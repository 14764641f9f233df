"""What the engine needs from a target model; adapters and scripted test models fit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from foredraft.errors import Overloaded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo
    from verifier_service.kv.block_pool import BlockPool


class Segment(NamedTuple):
    """Consecutive tokens of one session: tokens[i] stands at position start + i of its text.

    The KV of position p is row p % block_tokens of block blocks[p // block_tokens]. The logits of
    the last `wanted` rows are returned. If there are parents, the last len(parents) tokens are a
    draft tree after the tokens before them: their KV rows follow each other all
    the same, but a node at depth d is d positions after the last token before the tree, sees
    its own branch alone, and has the logits, bit for bit, that end its branch as a path.

    The first `mutual` rows see each other, whichever comes first; none of them is of a tree. Where
    there are positions, one for each token, these stand for the places in the text that its rows
    are counted with above; what a row sees stays a matter of rows.
    """

    blocks: Sequence[int]
    start: int
    tokens: Sequence[int]
    wanted: int
    parents: Sequence[int] = ()
    mutual: int = 0
    positions: Sequence[int] = ()


class TargetModel(Protocol):
    """A causal language model with a KV cache in blocks of a pool; whose they are, others decide.

    There is no truncation: KV at and beyond a segment's start is overwritten, KV before it must
    have been written by earlier segments, and hold a text: of a tree, the branch that `keep` left.
    """

    @property
    def info(self) -> ModelInfo:
        """The model's description, as clients receive it on open."""

    @property
    def pool(self) -> BlockPool:
        """The users of each block."""

    @property
    def block_tokens(self) -> int:
        """How many tokens' KV a block holds."""

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend.

        With a tree's first row as start and a branch as rows, the text goes on with it.
        """


class FeatureModel(TargetModel, Protocol):
    """A target model that fuses its hidden states for a drafter (foredraft.features.fusion)."""

    def forward_fused(
        self, segments: Sequence[Segment], rows: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Return forward's logits and the features of some rows of the pass.

        Rows are counted over all segments; features are the bits of bfloat16 values [rows, width].
        """


def alloc(model: TargetModel, tokens: int) -> list[int]:
    """Return blocks of a model's pool for a text of so many tokens, outside any session.

    Raise Overloaded if there are too few.
    """
    blocks = model.pool.take(-(-tokens // model.block_tokens))
    if not blocks:
        raise Overloaded("the verifier's KV cache is fully used")
    return blocks
