"""The embedded drafter: a block diffusion LM over an exactly cacheable causal prefix.

Committed tokens attend causally among themselves, so their keys and values never depend on a draft.
A block of k mask slots at positions n..n+k-1 attends to the whole prefix [0, n) and to every slot
of its own block; slot j predicts the token at position n + j (no shift). An edge head adds, for
each slot, a low-rank score of (previous token, token). Rows of many sessions may
share one pass: all that differs between them is hidden in the `attend` function.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.embedded.int8_rows import from_int8_rows, to_int8_rows
from drafter_service.models.weights import assigned

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""attend(layer_index, q, k, v) -> mixed values; all are [rows, heads, head_dim]; q and k are
already rotated.
"""

COMMITTED = -1
"""Slot number of a row that holds a committed token."""


@dataclass(frozen=True)
class BlockCausalConfig:
    """Contents of a drafter's config.json. `hidden_size` is `num_heads` times an even head size."""

    vocab_size: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    num_layers: int = 2
    edge_rank: int = 96
    rope_theta: float = 10_000.0
    rms_eps: float = 1e-5
    mask_token_id: int = 1
    eos_token_id: int = 0
    max_position_embeddings: int = 2048
    max_block: int = 16
    family: str = "block_causal"

    def __post_init__(self) -> None:
        """Raises ValueError for another family or sizes that do not divide."""
        if self.family != "block_causal":
            raise ValueError(f"a {self.family!r} drafter cannot be run as block_causal")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} is not num_heads {self.num_heads}"
                " times an even number"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads


def rotary_tables(config: BlockCausalConfig) -> tuple[Tensor, Tensor]:
    """fp32 cosines and sines, each [max_position_embeddings, head_dim]."""
    frequencies = config.rope_theta ** (
        -torch.arange(0, config.head_dim, 2).float() / config.head_dim
    )
    angles = torch.arange(config.max_position_embeddings).float()[:, None] * torch.cat(
        (frequencies, frequencies)
    )
    return angles.cos(), angles.sin()


class BlockCausalLayer(nn.Module):
    """One pre-norm layer with fused qkv and gate-up projections; attention itself is passed in."""

    def __init__(self, config: BlockCausalConfig, index: int) -> None:
        super().__init__()
        h, f = config.hidden_size, config.intermediate_size
        self.index, self.heads = index, config.num_heads
        self.attention_norm = nn.RMSNorm(h, config.rms_eps)
        self.qkv = nn.Linear(h, 3 * h, bias=False)
        self.out = nn.Linear(h, h, bias=False)
        self.mlp_norm = nn.RMSNorm(h, config.rms_eps)
        self.gate_up = nn.Linear(h, 2 * f, bias=False)
        self.down = nn.Linear(f, h, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [rows, hidden]; cos and sin [rows, 1, head_dim]. Returns [rows, hidden]."""
        q, k, v = self.qkv(self.attention_norm(x)).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = _rotate(q, cos, sin).to(v.dtype), _rotate(k, cos, sin).to(v.dtype)
        x = x + self.out(attend(self.index, q, k, v).flatten(1))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the rotate-half layout of Llama."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class BlockCausalDLM(nn.Module):
    """The drafter network. Embedding and output head are tied and are the target's, frozen."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: BlockCausalConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding.weight.requires_grad_(False)
        self.mask_slots = nn.Parameter(torch.zeros(config.max_block, config.hidden_size))
        self.layers = nn.ModuleList(
            BlockCausalLayer(config, index) for index in range(config.num_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.edge_previous = nn.Embedding(config.vocab_size, config.edge_rank)
        self.edge_next = nn.Embedding(config.vocab_size, config.edge_rank)
        self.edge_gate = nn.Linear(config.hidden_size, config.edge_rank)
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward_rows(
        self,
        token_ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        attend: Attend,
    ) -> Tensor:
        """Final normalised hidden states [rows, hidden] of rows flattened across sessions.

        token_ids, positions and slots are int64 [rows]. `slots` is COMMITTED for a committed token
        and j for mask slot j of a block, whose token id is then not read. `attend` is called once
        per layer, in order; it sees the new rows' keys and values, may add cached ones, and must
        apply the mask semantics of this module.
        """
        is_mask = (slots >= 0).unsqueeze(-1)
        x = torch.where(is_mask, self.mask_slots[slots.clamp(min=0)], self.embedding(token_ids))
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)

    def base_logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of each slot by itself."""
        return F.linear(hidden, self.embedding.weight)

    def edge_scores(self, hidden: Tensor, prev_tokens: Tensor, next_tokens: Tensor) -> Tensor:
        """Edge scores [k, P, N], added to base logits, between candidates of neighbouring slots.

        hidden [k, hidden] are the slots' states; prev_tokens [k, P] are candidates for the token
        before each slot (for slot 0 that is the last committed token), next_tokens [k, N] are
        candidates for the slot itself.
        """
        gated = self.edge_previous(prev_tokens) * self.edge_gate(hidden).unsqueeze(1)
        return gated @ self.edge_next(next_tokens).transpose(1, 2)

    def edge_logits(self, hidden: Tensor, prev_tokens: Tensor) -> Tensor:
        """Edge scores [rows, vocab] of every token after prev_tokens [rows], for slots with states
        [rows, hidden].
        """
        gated = self.edge_previous(prev_tokens) * self.edge_gate(hidden)
        return F.linear(gated, self.edge_next.weight)

    def save(self, directory: Path) -> None:
        """Writes config.json and model.safetensors, matrices in int8 rows, the rest in bf16."""
        directory.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().bfloat16() for name, value in self.state_dict().items()}
        save_file(to_int8_rows(state), directory / "model.safetensors", metadata={"format": "pt"})
        (directory / "config.json").write_text(json.dumps(asdict(self.config), indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path, dtype: torch.dtype) -> BlockCausalDLM:
        """Reads a drafter folder for inference.

        Raises FileNotFoundError when a file is missing and ValueError when a key is unknown,
        missing or misshapen.
        """
        config = read_config(directory)
        weights = from_int8_rows(load_file(directory / "model.safetensors"))
        model = assigned(lambda: cls(config), {k: w.to(dtype) for k, w in weights.items()})
        # Rotary tables stay fp32: cosines rounded to bf16 would blur the distances between
        # positions.
        model.cos, model.sin = rotary_tables(config)
        return model


def read_config(directory: Path) -> BlockCausalConfig:
    """Reads config.json. Raises FileNotFoundError, or ValueError for unknown, missing or wrong
    fields.
    """
    path = directory / "config.json"
    raw = json.loads(path.read_text())
    known = {field.name for field in fields(BlockCausalConfig)}
    if unknown := sorted(raw.keys() - known):
        raise ValueError(f"{path}: unknown fields {unknown}")
    try:
        return BlockCausalConfig(**raw)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
