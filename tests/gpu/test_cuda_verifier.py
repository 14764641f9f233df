"""The verifier on a CUDA device: drafts change no token, and the tokens are the CPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from deployments.config import model_path
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Base, SamplingParams
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.targets.engine import VerifierEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
PROMPT = tuple(range(40, 72))
TOKENS = 64


def config(device: str, **changed: Any) -> VerifierConfig:
    model = Path(model_path("models/embedded/target"))
    return VerifierConfig(model=model, device=device, dtype="fp32", **changed)


def engine(device: str, **changed: Any) -> VerifierEngine:
    return load_engine(config(device, **changed))


def forked(tokens: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the (tokens, parents) of a tree in which each token has a wrong sibling before it."""
    pairs = [((token + 1) % 4096, token) for token in tokens]
    parents = [2 * depth - 1 for depth in range(len(tokens)) for _ in range(2)]
    return tuple(token for pair in pairs for token in pair), tuple(parents)


def decode(
    target: VerifierEngine, temperature: float, guide: tuple[int, ...] = (), *, tree: bool = False
) -> list[int]:
    """Decode TOKENS tokens; a guide text is drafted as paths of eight or as trees of depth four."""
    sampling = SamplingParams(temperature=temperature, seed=7)
    handle = target.open(VerifyOpen("gpu", PROMPT, sampling, TOKENS + 16, 8))
    text = list(PROMPT)
    while len(text) < len(PROMPT) + TOKENS:
        at = len(text) - len(PROMPT)
        base = Base("gpu", at, len(text), hash_prefix(text))
        draft, parents = forked(guide[at : at + 4]) if tree else (guide[at : at + 8], ())
        target.submit(handle, Round(base, draft, 1, parents))
        outcomes: list[Any] = []
        while not outcomes:
            outcomes = target.step()
        verdict = outcomes[0].result
        assert isinstance(verdict, Verdict)
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
    target.close(handle)
    return text[len(PROMPT) :][:TOKENS]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "changed",
    [{}, {"cuda_graphs": "off"}, {"attention": "matmul"}],
    ids=["graphs", "flex", "matmul"],
)
def test_cuda_decodes_the_same_tokens_with_and_without_drafts(
    temperature: float, changed: dict[str, Any]
) -> None:
    cuda = engine("cuda", **changed)
    plain = decode(cuda, temperature)
    wrong_in_places = tuple(t if i % 5 else (t + 1) % 4096 for i, t in enumerate(plain))
    assert decode(cuda, temperature, tuple(plain)) == plain
    assert decode(cuda, temperature, wrong_in_places) == plain
    assert decode(cuda, temperature, wrong_in_places, tree=True) == plain
    assert decode(engine("cpu"), temperature) == plain
