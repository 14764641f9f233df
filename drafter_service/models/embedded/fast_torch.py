"""BlockCausalDLM's forward pass with as few operations as possible, over cached prefixes.

At 18 rows an operation's overhead counts as much as its arithmetic. So norm weights are folded
into the projections, queries and keys are rotated together with the attention scale in the tables,
and the last layer computes only what is read: keys and values of the committed rows, everything of
the mask rows. Equal to forward_rows but for rounding (tests/unit/drafter/models/test_embedded.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.embedded.block_causal import BlockCausalDLM, BlockCausalLayer
from drafter_service.models.embedded.features import feature_rows
from drafter_service.models.embedded.linear import Linear
from drafter_service.models.port import BlockRequest


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class FusedBlockCausal:
    """A BlockCausalDLM for serving; `linear` makes a layer from its weight [out, in]."""

    def __init__(self, model: BlockCausalDLM, linear: Callable[[Tensor], Linear]) -> None:
        config = model.config
        self.config = config
        self._layers = [_fold(layer, linear) for layer in model.layers]
        self._head = linear(model.head_weight * model.norm.weight)
        self._token_ids, self._row_of = model.token_ids, model.row_of
        self._embedding = model.embedding.weight.float()
        self._mask_slots = model.mask_slots.float()
        self._edge_gate = linear(model.edge_gate.weight * model.norm.weight)
        self._edge_bias = model.edge_gate.bias.float()
        self._edge_previous = model.edge_previous.weight.float()
        self._edge_next = model.edge_next.weight.float()
        # Rotation is x cos + swapped(x) sin, the first half's sin negated; the attention scale
        # goes with the queries: tables [positions, (q, k), 1, head_dim].
        sign = torch.ones(config.head_dim)
        sign[: config.head_dim // 2] = -1
        scale = torch.tensor([config.head_dim**-0.5, 1.0])[None, :, None, None]
        self._cos = model.cos[:, None, None, :] * scale
        self._sin = (model.sin * sign)[:, None, None, :] * scale

    def forward(self, requests: Sequence[BlockRequest], keys: Tensor, values: Tensor) -> Tensor:
        """Return the normalised states [mask rows, hidden] of the requests' mask slots.

        keys and values [layers, slots, heads, tokens, head_dim] are read up to each request's start
        and written behind it.
        """
        embedded: list[Tensor] = []
        positions: list[int] = []
        masks: list[int] = []
        row = 0
        for r in requests:
            count = len(r.tokens)
            committed = self._committed(r)
            embedded += [committed, self._slots(r, committed[-1])]
            positions.extend(range(r.start, r.start + count + r.num_slots))
            masks.extend(range(row + count, row + count + r.num_slots))
            row += count + r.num_slots
        x = torch.cat(embedded)
        at = torch.tensor(positions)
        cos, sin = self._cos.index_select(0, at), self._sin.index_select(0, at)
        mask_rows = torch.tensor(masks, dtype=torch.int64)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            queries = self._project(layer, x, cos, sin, requests, keys[index], values[index])
            if index == last:
                if not masks:
                    return x[:0]
                x, queries = x.index_select(0, mask_rows), queries.index_select(0, mask_rows)
            mixed = _attend(queries, requests, keys[index], values[index], committed=index < last)
            x = x + layer.out(mixed)
            gate, up = layer.gate_up(_normalise(x, self.config.rms_eps)).chunk(2, dim=-1)
            x += layer.down(F.silu(gate) * up)
        return _normalise(x, self.config.rms_eps)

    def _committed(self, r: BlockRequest) -> Tensor:
        """Return the embedded tokens [tokens, hidden], with features where the model reads some."""
        tokens = F.embedding(torch.tensor(r.tokens), self._embedding)
        if not self.config.target_layer_ids:
            return tokens
        return tokens + torch.from_numpy(feature_rows([r], self.config.hidden_size))

    def _slots(self, r: BlockRequest, anchor: Tensor) -> Tensor:
        """Return the embedded slots [num_slots, hidden]: masks, and tokens where it has some.

        anchor [hidden] is the last committed token's input.
        """
        masks = self._mask_slots[: r.num_slots]
        if self.config.anchored:
            masks = masks + anchor
        if not r.filled:
            return masks
        filled = torch.tensor(r.filled)
        tokens = F.embedding(filled.clamp(min=0), self._embedding)
        return torch.where((filled < 0)[:, None], masks, tokens)

    def _project(
        self,
        layer: _Layer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        requests: Sequence[BlockRequest],
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """Write the rows' keys and values to the caches; return queries [rows, heads, head_dim]."""
        heads = self.config.num_heads
        qkv = layer.qkv(_normalise(x, self.config.rms_eps)).view(len(x), 3, heads, -1)
        qk = qkv[:, :2]
        first, second = qk.chunk(2, dim=-1)
        rotated = torch.addcmul(qk * cos, torch.cat((second, first), dim=-1), sin)
        row = 0
        for r in requests:
            count = len(r.tokens) + r.num_slots
            end = r.start + count
            keys[r.slot, :, r.start : end] = rotated[row : row + count, 1].transpose(0, 1)
            values[r.slot, :, r.start : end] = qkv[row : row + count, 2].transpose(0, 1)
            row += count
        return rotated[:, 0].to(keys.dtype)

    def logits(self, states: Tensor) -> Tensor:
        """Logits [rows, vocab] in fp32, -inf for tokens that are not scored."""
        logits = self._head(states).float()
        if not self.config.shortlist_size:
            return logits
        whole = torch.full((len(logits), self.config.vocab_size), -torch.inf)
        return whole.index_copy_(1, self._token_ids, logits)

    def edges(self, states: Tensor, previous: Tensor, following: Tensor) -> Tensor:
        """BlockCausalDLM.edge_scores: previous [k, P] and following [k, N] -> [k, P, N]."""
        gate = self._edge_gate(states).float() + self._edge_bias
        # A slot may hold a token that is not scored; it gets another's edges.
        before = self._row_of[previous]
        after = self._row_of[following].clamp(max=len(self._edge_next) - 1)
        gated = F.embedding(before, self._edge_previous) * gate.unsqueeze(1)
        return torch.bmm(gated, F.embedding(after, self._edge_next).transpose(1, 2))


def _fold(layer: nn.Module, linear: Callable[[Tensor], Linear]) -> _Layer:
    """Return the layer's projections with the weights of the norms before them folded in."""
    assert isinstance(layer, BlockCausalLayer)
    return _Layer(
        linear(layer.qkv.weight * layer.attention_norm.weight),
        linear(layer.out.weight),
        linear(layer.gate_up.weight * layer.mlp_norm.weight),
        linear(layer.down.weight),
    )


def _normalise(x: Tensor, eps: float) -> Tensor:
    """RMSNorm without its weight, [rows, hidden]."""
    return F.rms_norm(x, x.shape[-1:], None, eps)


def _attend(
    queries: Tensor,
    requests: Sequence[BlockRequest],
    keys: Tensor,
    values: Tensor,
    *,
    committed: bool,
) -> Tensor:
    """Mix values for queries [rows, heads, head_dim]; return fp32 [rows, hidden].

    Mask rows see everything of their session. Where committed rows are among the queries, before
    their session's mask rows, they see the tokens up to themselves.
    """
    rows, heads, width = queries.shape
    out = torch.empty(rows, heads, width)
    row = 0
    for r in requests:
        count = len(r.tokens) * committed + r.num_slots
        end = r.start + len(r.tokens) + r.num_slots
        mine = queries[row : row + count].transpose(0, 1)
        scores = torch.bmm(mine, keys[r.slot, :, :end].transpose(1, 2))
        if committed:
            new = torch.full((len(r.tokens), end - r.start), -torch.inf, dtype=scores.dtype)
            scores[:, : len(r.tokens), r.start :] += new.triu_(1)
        mixed = torch.bmm(torch.softmax(scores, dim=-1), values[r.slot, :, :end])
        out[row : row + count] = mixed.transpose(0, 1)
        row += count
    return out.view(rows, heads * width)
