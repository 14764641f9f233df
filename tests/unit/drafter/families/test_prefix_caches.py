"""What public families cache of a prefix: exactly, or stale by a rule that is written out here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from drafter_service.load import load_model
from drafter_service.models.families.adapter import FamilyDrafter
from drafter_service.models.port import BlockRequest
from tests.support.families.own_formats import write_mdlm
from tests.support.families.public import CASES, MASK, Case, config_of, expected, write

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
Kept = list[tuple[torch.Tensor, torch.Tensor]]
BLOCKED = [name for name, case in CASES.items() if case.block]
FULL = [name for name, case in CASES.items() if not case.block]


class Rounds:
    """Requests as the engine makes them: texts that grow, are cut back, and change their slots."""

    def __init__(self, seed: int, slots: int, longest: int = 48) -> None:
        self._random = random.Random(seed)
        self._texts: dict[int, list[int]] = {slot: [] for slot in range(slots)}
        self._longest = longest

    def tokens(self, least: int, most: int) -> list[int]:
        return [self._random.randrange(1, MASK) for _ in range(self._random.randint(least, most))]

    def grown(self, text: list[int]) -> list[int]:
        kind = self._random.random()
        if not text or kind < 0.06 or len(text) + 5 > self._longest:
            return self.tokens(1, 20)
        if kind < 0.2:
            return text[: self._random.randrange(len(text))] + self.tokens(1, 3)
        return text if kind < 0.3 else text + self.tokens(1, 5)

    def __iter__(self) -> Iterator[list[tuple[int, list[int], list[int], bool]]]:
        """Yield passes: of each session its slot, its text, its block's slots, and if tentative."""
        while True:
            asked = []
            for slot in self._random.sample(sorted(self._texts), self._random.randint(1, 3)):
                text = self._texts[slot] = self.grown(self._texts[slot])
                block = [MASK] * self._random.randint(1, 6)
                kind = self._random.random()
                if kind < 0.2:
                    block[self._random.randrange(len(block))] = 44
                elif kind < 0.4:
                    text = text + self.tokens(1, 4)
                asked.append((slot, text, block, kind < 0.4))
            yield asked


def same_tokens(one: list[int], other: list[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def request(
    slot: int, text: list[int], block: list[int], tentative: bool = False, start: int = 0
) -> BlockRequest:
    filled = [-1 if token == MASK else token for token in block]
    return BlockRequest(slot, start, text[start:], len(block), filled, tentative=tentative)


def loaded(name: str, folder: Path, **fields: Any) -> tuple[Case, Any, FamilyDrafter]:
    case = CASES[name]
    reference = write(case, folder)
    drafter = load_model(config_of(case, folder, **fields))
    assert isinstance(drafter, FamilyDrafter)
    return case, reference, drafter


def fed(drafter: FamilyDrafter) -> list[int]:
    """How many rows each pass feeds, from now on."""
    counts: list[int] = []
    network: Any = drafter._network
    network.embed_tokens.register_forward_hook(lambda _, rows, __: counts.append(len(rows[0])))
    return counts


@pytest.mark.parametrize("cache_tokens", [30, 1000])
@pytest.mark.parametrize("name", BLOCKED)
def test_whole_blocks_are_cached_exactly(name: str, cache_tokens: int, tmp_path: Path) -> None:
    case, reference, drafter = loaded(name, tmp_path / "model", cache_tokens=cache_tokens)
    assert drafter.capabilities.prefix_kv == "exact"
    counts, whole = fed(drafter), 0
    held: dict[int, list[int]] = {}
    for number, asked in zip(range(60), Rounds(4, 5), strict=False):
        requests = []
        for slot, text, block, tentative in asked:
            # The engine leaves out what its session's slot holds; a new session's slot holds none.
            same = same_tokens(held.get(slot, []), text) if number % 7 else 0
            requests.append(request(slot, text, block, tentative, min(same, len(text) - 1)))
            held[slot] = text
            whole += len(text) + len(block)
        wanted = torch.cat([expected(case, reference, *each[1:3]) for each in asked])
        torch.testing.assert_close(drafter.logits(requests), wanted, **CLOSE)
        assert drafter._prefixes.tokens <= cache_tokens
    assert sum(counts) < (0.6 if cache_tokens == 1000 else 0.95) * whole


@pytest.mark.parametrize("name", BLOCKED)
def test_a_prefix_fed_in_chunks_is_cached_all_the_same(name: str, tmp_path: Path) -> None:
    case, reference, drafter = loaded(name, tmp_path / "model")
    counts, text = fed(drafter), list(range(1, 35))
    for start in range(0, 30, 5):
        assert len(drafter.logits([BlockRequest(0, start, text[start : start + 5], 0)])) == 0
    found = drafter.logits([request(0, text, [MASK] * 4, start=30)])
    torch.testing.assert_close(found, expected(case, reference, text, [MASK] * 4), **CLOSE)
    # Of the last chunk's 30 tokens those in whole blocks are not fed again.
    assert counts[-1] == 34 + 4 - 30 // case.block * case.block


class Stale:
    """The stated approximation, one session at a time: keys and values as they were last made."""

    def __init__(self, case: Case, reference: Any, refresh: int) -> None:
        self._case, self._reference, self._refresh = case, reference, refresh
        self._text: list[int] = []
        self._kept: Kept = []
        self._read_at = 0

    def logits(self, text: list[int], block: list[int], tentative: bool) -> torch.Tensor:
        same = same_tokens(self._text, text)
        read_at = min(self._read_at, same)
        start = min(same, len(text) - 1)
        if len(text) - read_at >= self._refresh and not tentative:
            start = 0
        states, made = self._states(text, block, start)
        if not tentative:
            self._text, self._kept = text, made
            self._read_at = read_at if start else len(text)
        logits: torch.Tensor = self._reference.lm_head(self._reference.model.norm(states))
        first = len(logits) - len(block) - self._case.shift
        return logits[first : first + len(block)]

    @torch.no_grad()
    def _states(self, text: list[int], block: list[int], start: int) -> tuple[torch.Tensor, Kept]:
        model, kept = self._reference.model, self._kept
        row = torch.tensor([*text, *block])[None, start:]
        x = model.embed_tokens(row)
        cos, sin = model.rotary_emb(x, torch.arange(start, len(text) + len(block))[None])
        made = []
        for number, layer in enumerate(model.layers):
            normed, part = layer.input_layernorm(x), layer.self_attn
            q, k, v = (
                linear(normed)[0].unflatten(1, (-1, part.head_dim)).transpose(0, 1)
                for linear in (part.q_proj, part.k_proj, part.v_proj)
            )
            q, k = apply_rotary_pos_emb(q, k, cos[0], sin[0], unsqueeze_dim=0)
            if start:
                k = torch.cat((kept[number][0][:, :start], k), dim=1)
                v = torch.cat((kept[number][1][:, :start], v), dim=1)
            made.append((k[:, : len(text)], v[:, : len(text)]))
            mixed = []
            for head, query in enumerate(q):
                at = head * len(k) // len(q)
                weights = (query @ k[at].T / part.head_dim**0.5).softmax(-1)
                mixed.append(weights @ v[at])
            x = x + part.o_proj(torch.cat(mixed, dim=1))[None]
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x[0], made


@pytest.mark.parametrize("refresh", [6, 20, 1000])
@pytest.mark.parametrize("name", FULL)
def test_between_refreshes_the_prefix_is_stale_as_stated(
    name: str, refresh: int, tmp_path: Path
) -> None:
    case, reference, drafter = loaded(name, tmp_path / "model", prefix_refresh=refresh)
    assert drafter.capabilities.prefix_kv == "approximate"
    sessions = [Stale(case, reference, refresh) for _ in range(4)]
    stale = 0
    for _, asked in zip(range(40), Rounds(5, 4), strict=False):
        found = drafter.logits([request(*each) for each in asked])
        wanted = [sessions[slot].logits(*each) for slot, *each in asked]
        torch.testing.assert_close(found, torch.cat(wanted), **CLOSE)
        exact = [expected(case, reference, *each[1:3]) for each in asked]
        stale += not torch.allclose(found, torch.cat(exact), **CLOSE)
    assert stale > 10


@pytest.mark.parametrize("refresh", [0, 1])
@pytest.mark.parametrize("name", FULL)
def test_a_prefix_read_in_every_pass_is_exact(name: str, refresh: int, tmp_path: Path) -> None:
    case, reference, drafter = loaded(name, tmp_path / "model", prefix_refresh=refresh)
    assert drafter.capabilities.prefix_kv == ("approximate" if refresh else "none")
    rounds, text = Rounds(6, 1), [5, 9, 33]
    for _ in range(10):
        text = text + rounds.tokens(1, 4)
        found = drafter.logits([request(0, text, [MASK] * 5)])
        torch.testing.assert_close(found, expected(case, reference, text, [MASK] * 5), **CLOSE)
        assert drafter._prefixes.tokens == (len(text) if refresh else 0)


def test_sessions_that_give_way_are_read_anew(tmp_path: Path) -> None:
    case, reference, drafter = loaded(
        "dream", tmp_path / "model", prefix_refresh=1000, cache_tokens=25
    )
    texts = [[*range(1, 11)], [*range(20, 30)], [*range(40, 50)]]
    counts = fed(drafter)
    for slot in (0, 1, 2, 2, 1, 0):
        drafter.logits([request(slot, texts[slot], [MASK] * 2)])
        assert drafter._prefixes.tokens <= 25
    # The third makes the first give way, the first then the third; a cached one feeds its last row.
    assert counts == [12, 12, 12, 3, 3, 12]
    found = drafter.logits([request(2, texts[2], [MASK] * 2)])
    torch.testing.assert_close(found, expected(case, reference, texts[2], [MASK] * 2), **CLOSE)


def test_a_text_longer_than_the_bound_is_not_cached(tmp_path: Path) -> None:
    _, _, drafter = loaded("dream", tmp_path / "model", prefix_refresh=1000, cache_tokens=8)
    counts = fed(drafter)
    for _ in range(2):
        drafter.logits([request(0, [*range(1, 11)], [MASK] * 2)])
    assert (counts, drafter._prefixes.tokens) == ([12, 12], 0)


@pytest.mark.parametrize("time_conditioning", [False, True])
def test_mdlm_caches_its_prefix(time_conditioning: bool, tmp_path: Path) -> None:
    write_mdlm(tmp_path / "model", time_conditioning=time_conditioning)
    case = Case({}, None)
    exact, cached = (
        load_model(config_of(case, tmp_path / "model", prefix_refresh=refresh))
        for refresh in (0, 8)
    )
    assert isinstance(exact, FamilyDrafter) and isinstance(cached, FamilyDrafter)
    text, counts, stale = [5, 9, 33], fed(cached), []
    for _ in range(12):
        text = [*text, 7]
        asked = [request(0, text, [MASK] * 3)]
        stale.append(not torch.allclose(cached.logits(asked), exact.logits(asked), **CLOSE))
    whole = [len_ + 3 for len_ in range(4, 16)]
    assert counts == [whole[0], *[4] * 7, whole[8], *[4] * 3]
    assert [at for at, each in enumerate(stale) if not each] == [0, 8]
