"""The embedded drafter: a block diffusion LM over an exactly cacheable causal prefix.

Committed tokens attend causally among themselves, so their keys and values never depend on a draft.
A block of k mask slots at positions n..n+k-1 attends to the whole prefix [0, n) and to every slot
of its own block; slot j predicts the token at position n + j (no shift). An edge head adds, for
each slot, a low-rank score of (previous token, token). Rows of many sessions may
share one pass: all that differs between them is hidden in the `attend` function.

A drafter for a large vocabulary has a shortlist: it takes embedding and head from its target's
folder, and scores the tokens of the shortlist alone (FR-Spec, arXiv 2502.14856). A drafter that
reads the target's features adds to each committed token's embedding the features of the token
before it, which are known once the token itself is (the shift of EAGLE, arXiv 2401.15077). The
slots of an anchored drafter begin with the last committed token's input added to the mask's, so
that its first layer need not look for it.
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
from drafter_service.models.embedded.shortlist import checked_shortlist, rows_of_target
from drafter_service.models.weights import assigned
from foredraft.features.fusion import WEIGHTS

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""attend(layer_index, q, k, v) -> mixed values; all are [rows, heads, head_dim]; q and k are
already rotated.
"""

COMMITTED = -1
"""Slot number of a row that holds a committed token."""


@dataclass(frozen=True)
class BlockCausalConfig:
    """Contents of a drafter's config.json. `hidden_size` is `num_heads` times an even head size.

    shortlist_size is the number of tokens that are scored by a drafter with a shortlist, else 0;
    target_layer_ids are the target's layers whose hidden states are fused to features, if any;
    anchored adds the last committed token's input to each mask slot.
    """

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
    shortlist_size: int = 0
    target_layer_ids: tuple[int, ...] = ()
    anchored: bool = False
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
        if not 0 <= self.shortlist_size <= self.vocab_size:
            raise ValueError(f"shortlist_size {self.shortlist_size} of {self.vocab_size} tokens")

    @property
    def num_scored(self) -> int:
        """How many tokens the head scores."""
        return self.shortlist_size or self.vocab_size

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
        q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        x = x + self.out(attend(self.index, q, k, v).flatten(1))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the rotate-half layout of Llama."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class BlockCausalDLM(nn.Module):
    """The drafter network. Embedding and output head are the target's, frozen.

    They are tied where there is no shortlist. Row i of the head and of the edge tables is for token
    token_ids[i]; row_of [vocab] is each token's row, and the one behind all for other tokens, which
    edge_previous alone has.
    """

    cos: Tensor
    sin: Tensor
    token_ids: Tensor
    row_of: Tensor

    def __init__(self, config: BlockCausalConfig) -> None:
        super().__init__()
        self.config = config
        scored, listed = config.num_scored, bool(config.shortlist_size)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding.weight.requires_grad_(False)
        self.head: nn.Linear | None = None
        if listed:
            self.head = nn.Linear(config.hidden_size, scored, bias=False)
            self.head.weight.requires_grad_(False)
        self.register_buffer("token_ids", torch.arange(scored), persistent=listed)
        self.register_buffer("row_of", torch.arange(config.vocab_size), persistent=False)
        self.mask_slots = nn.Parameter(torch.zeros(config.max_block, config.hidden_size))
        self.layers = nn.ModuleList(
            BlockCausalLayer(config, index) for index in range(config.num_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_eps)
        self.edge_previous = nn.Embedding(scored + listed, config.edge_rank)
        self.edge_next = nn.Embedding(scored, config.edge_rank)
        self.edge_gate = nn.Linear(config.hidden_size, config.edge_rank)
        if config.target_layer_ids:
            width = config.hidden_size
            self.fc = nn.Linear(len(config.target_layer_ids) * width, width, bias=False)
            self.hidden_norm = nn.RMSNorm(width, config.rms_eps)
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward_rows(
        self,
        token_ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        attend: Attend,
        features: Tensor | None = None,
        anchors: Tensor | None = None,
    ) -> Tensor:
        """Final normalised hidden states [rows, hidden] of rows flattened across sessions.

        token_ids, positions and slots are int64 [rows]. `slots` is COMMITTED for a committed token
        and j for mask slot j of a block, whose token id is then not read. `attend` is called once
        per layer, in order; it sees the new rows' keys and values, may add cached ones, and must
        apply the mask semantics of this module. features [rows, hidden] are those of the token
        before each committed token, zeros for a text's first; those of mask slots are not read.
        anchors int64 [rows] are the rows of the last committed tokens before mask slots, which an
        anchored model needs.
        """
        is_mask = (slots >= 0).unsqueeze(-1)
        committed = self.embedding(token_ids)
        if features is not None:
            committed = committed + features
        masks = self.mask_slots[slots.clamp(min=0)]
        if self.config.anchored:
            assert anchors is not None
            masks = masks + committed[anchors]
        x = torch.where(is_mask, masks, committed)
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)

    def fused(self, states: Tensor) -> Tensor:
        """Features [rows, hidden] of the target's hidden states [rows, layers x hidden]."""
        projected = self.fc(states).to(self.hidden_norm.weight.dtype)
        features: Tensor = self.hidden_norm(projected)
        return features

    @property
    def head_weight(self) -> Tensor:
        """[scored, hidden]"""
        return self.embedding.weight if self.head is None else self.head.weight

    def set_shortlist(self, token_ids: Tensor) -> None:
        """Take the tokens [scored] that the head scores."""
        self.token_ids = token_ids.long()
        self.row_of = torch.full((self.config.vocab_size,), len(token_ids))
        self.row_of[self.token_ids] = torch.arange(len(token_ids))

    def base_logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, scored] of each slot by itself."""
        return F.linear(hidden, self.head_weight)

    def edge_scores(self, hidden: Tensor, prev_tokens: Tensor, next_tokens: Tensor) -> Tensor:
        """Edge scores [k, P, N], added to base logits, between candidates of neighbouring slots.

        hidden [k, hidden] are the slots' states; prev_tokens [k, P] are candidates for the token
        before each slot (for slot 0 that is the last committed token), next_tokens [k, N] are
        candidates for the slot itself, all of them scored tokens.
        """
        gated = self.edge_previous(self.row_of[prev_tokens]) * self.edge_gate(hidden).unsqueeze(1)
        return gated @ self.edge_next(self.row_of[next_tokens]).transpose(1, 2)

    def edge_logits(self, hidden: Tensor, prev_tokens: Tensor) -> Tensor:
        """Edge scores [rows, scored] of every scored token after prev_tokens [rows], for slots with
        states [rows, hidden].
        """
        gated = self.edge_previous(self.row_of[prev_tokens]) * self.edge_gate(hidden)
        return F.linear(gated, self.edge_next.weight)

    def save(self, directory: Path) -> None:
        """Writes config.json and model.safetensors: matrices in int8 rows, the rest and what fuses
        features in bf16, the shortlist as int32; not what a drafter with a shortlist has from its
        target.
        """
        directory.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach() for name, value in self.state_dict().items()}
        if self.head is not None:
            del state["embedding.weight"], state["head.weight"]
        exact = {"token_ids": torch.int32, **dict.fromkeys(WEIGHTS, torch.bfloat16)}
        kept = {name: state.pop(name).to(exact[name]) for name in exact.keys() & state.keys()}
        rows = to_int8_rows({name: value.bfloat16() for name, value in state.items()})
        save_file(rows | kept, directory / "model.safetensors", metadata={"format": "pt"})
        (directory / "config.json").write_text(json.dumps(asdict(self.config), indent=2) + "\n")

    @classmethod
    def load(
        cls, directory: Path, dtype: torch.dtype, target: Path | None = None
    ) -> BlockCausalDLM:
        """Reads a drafter folder for inference, with its target's folder if it has a shortlist.

        Raises FileNotFoundError when a file is missing, ValueError when a key is unknown, missing
        or misshapen, and ConfigError where the target is missing.
        """
        config = read_config(directory)
        stored = load_file(directory / "model.safetensors")
        shortlist = stored.pop("token_ids", None)
        weights = {k: w.to(dtype) for k, w in from_int8_rows(stored).items()}
        if config.shortlist_size:
            shape = (config.vocab_size, config.hidden_size)
            listed = checked_shortlist(shortlist, config.num_scored, shape[0], config.eos_token_id)
            embedding, head = rows_of_target(target, shape)
            weights["embedding.weight"] = embedding.to(dtype)
            weights["head.weight"] = head[listed].to(dtype)
            weights["token_ids"] = listed
        model = assigned(lambda: cls(config), weights)
        # Assigned weights leave the other buffers without storage. Rotary tables stay fp32: cosines
        # rounded to bf16 would blur the distances between positions.
        model.cos, model.sin = rotary_tables(config)
        model.set_shortlist(
            model.token_ids if config.shortlist_size else torch.arange(config.vocab_size)
        )
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
    if isinstance(raw.get("target_layer_ids"), list):
        raw["target_layer_ids"] = tuple(raw["target_layer_ids"])
    try:
        return BlockCausalConfig(**raw)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
