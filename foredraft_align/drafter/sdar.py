"""A drafter in SDAR's public format in training: the network that the drafter service loads.

Attention is block-causal over blocks of `block` positions, which begin at multiples of it; a row
sees its whole block and those before. A draft behind n tokens is read from a region: the tokens of
n's own block, then masks. The text itself is computed without masks, as a served prefix is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.families.attending import Rows
from drafter_service.models.families.decoder import Decoder, DecoderConfig
from foredraft_align.drafter.student import Wanted
from foredraft_align.loop.batches import Batch
from foredraft_align.loop.cross_entropy import cross_entropy

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


class WideNorm(nn.RMSNorm):
    """A norm in fp32 of what was multiplied in bf16."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x [..., width] normalised, in fp32."""
        return super().forward(x.float())


class MaskedEmbedding(nn.Module):
    """A frozen embedding [vocab, hidden], and one row more that is trained: the mask's."""

    def __init__(self, table: Tensor, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.mask = nn.Parameter(mask)

    @property
    def weight(self) -> Tensor:
        """The frozen part [vocab, hidden]."""
        table: Tensor = self.table
        return table

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the rows of tokens [n]."""
        masked = tokens == len(self.weight)
        return torch.where(masked[:, None], self.mask, F.embedding(tokens * ~masked, self.weight))


class SdarStudent:
    """A Qwen3-shaped decoder with a mask token, as a Student.

    The network's vocabulary is the target's and the mask. Embedding and head are frozen; head
    [vocab, hidden] leaves out the mask, which is no candidate.
    """

    def __init__(
        self, network: Decoder, head: Tensor, block: int, eos: int, tokenizer: Path
    ) -> None:
        """tokenizer is the folder whose tokenizer's files go with the weights."""
        self.network, self._head, self._block, self._eos = network, head, block, eos
        self._tokenizer = tokenizer
        self._sizes: DecoderConfig = network.config
        self._mask = self._sizes.vocab_size - 1
        self._rows = torch.arange(self._mask)

    @property
    def row_of(self) -> Tensor:
        """int64 [vocab], see Student: every token is scored."""
        return self._rows

    @property
    def num_scored(self) -> int:
        """All tokens but the mask."""
        return self._mask

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the layers, the norm and the mask."""
        return self.network.named_parameters()

    def hidden_of_slots(self, batch: Batch, filled: Tensor | None = None) -> Tensor:
        """Return the slots' states, see Student."""
        texts, length = batch.tokens.shape
        _, blocks, slots = batch.labels.shape
        places, tokens = self._regions(batch, filled)
        positions = torch.cat(
            (torch.arange(length).expand(texts, -1), places.clamp(min=0).flatten(1)), dim=1
        ).clamp(max=self._sizes.max_len - 1)
        tokens = torch.cat((batch.tokens, tokens.flatten(1)), dim=1)
        visible = self._visible(batch.anchors, places, length)

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (
                each.to(v.dtype).unflatten(0, (texts, -1)).transpose(1, 2) for each in (q, k, v)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, visible, enable_gqa=True)
            return mixed.transpose(1, 2).flatten(0, 1)

        rows = Rows(tokens.flatten(), positions.flatten(), torch.zeros(tokens.numel()))
        states: Tensor = self.network(rows, attend)
        of_regions = states.unflatten(0, (texts, -1))[:, length:]
        return of_regions.unflatten(1, (blocks, -1))[:, :, -slots:].flatten(0, 2)

    def loss(self, hidden: Tensor, previous: Tensor, wanted: Wanted, base_share: float) -> Tensor:
        """Return the loss of slots by themselves: the format has no edges."""
        return cross_entropy(F.linear(hidden, self._head), *wanted)

    def best(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Return each slot's best token [n], whatever is before it."""
        return F.linear(hidden, self._head).argmax(-1)

    def save(self, folder: Path) -> None:
        """Write config.json, the weights in bf16 and the tokenizer's files."""
        folder.mkdir(parents=True, exist_ok=True)
        table: MaskedEmbedding = self.network.embed_tokens
        kept = {
            f"model.{name}": value.detach()
            for name, value in self.network.named_parameters()
            if name.startswith(("layers.", "norm."))
        }
        kept["model.embed_tokens.weight"] = torch.cat((table.weight, table.mask.detach()[None]))
        if not self._sizes.tied:
            kept["lm_head.weight"] = F.pad(self._head, (0, 0, 0, 1))
        weights = {name: value.bfloat16().contiguous() for name, value in kept.items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self._config(), indent=2) + "\n")
        for name in _TOKENIZER:
            if (self._tokenizer / name).is_file() and self._tokenizer != folder:
                shutil.copyfile(self._tokenizer / name, folder / name)

    def _regions(self, batch: Batch, filled: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the positions and tokens [b, c, block - 1 + s] of each anchor's region.

        Those before the anchor's own block are there for the shape alone.
        """
        slots, length = batch.labels.shape[2], batch.tokens.shape[1]
        places = batch.anchors[..., None] + torch.arange(1 - self._block, slots)
        before = places[..., : self._block - 1].clamp(0, length - 1)
        shown = batch.tokens.gather(1, before.flatten(1)).view(before.shape)
        drafted = torch.full_like(batch.labels, self._mask)
        if filled is not None:
            drafted = torch.where(filled, batch.labels, drafted)
        return places, torch.cat((shown, drafted), dim=2)

    def _visible(self, anchors: Tensor, places: Tensor, length: int) -> Tensor:
        """Return bool [b, 1, n, n] over a text's tokens and all of its regions."""
        texts, regions, size = places.shape
        of_text = torch.arange(length) // self._block
        block = places // self._block
        own = (anchors // self._block)[..., None]
        rows = length + regions * size
        visible = torch.zeros(texts, rows, rows, dtype=torch.bool)
        visible[:, :length, :length] = of_text[:, None] >= of_text
        visible[:, length:, :length] = own.expand(-1, -1, size).flatten(1)[..., None] > of_text
        within = (block[..., :, None] >= block[..., None, :]) & (block >= own)[..., None, :]
        # A row that is there for the shape sees itself: a softmax over nothing is no number.
        within |= torch.eye(size, dtype=torch.bool)
        for region in range(regions):
            at = slice(length + region * size, length + (region + 1) * size)
            visible[:, at, at] = within[:, region]
        return visible[:, None]

    def _config(self) -> dict[str, Any]:
        sizes = self._sizes
        return {
            "architectures": ["SDARForCausalLM"],
            "model_type": "sdar",
            "attention_bias": False,
            "block_size": self._block,
            "eos_token_id": self._eos,
            "head_dim": sizes.head_dim,
            "hidden_act": "silu",
            "hidden_size": sizes.hidden_size,
            "intermediate_size": sizes.intermediate_size,
            "mask_token_id": self._mask,
            "max_position_embeddings": sizes.max_len,
            "num_attention_heads": sizes.num_heads,
            "num_hidden_layers": sizes.num_layers,
            "num_key_value_heads": sizes.num_kv_heads,
            "rms_norm_eps": sizes.rms_eps,
            "rope_theta": sizes.rope_theta,
            "tie_word_embeddings": sizes.tied,
            "torch_dtype": "bfloat16",
            "vocab_size": sizes.vocab_size,
        }
