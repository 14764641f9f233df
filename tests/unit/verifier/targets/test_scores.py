"""What an audit asks the engine: the scores that the target's choice compared."""

from __future__ import annotations

import numpy as np
import pytest

from foredraft.messages import Verdict
from foredraft.types import SamplingParams
from tests.support.verifiers import RandomModel, make_engine, opening, round_after
from verifier_service.targets.scores import scores


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=0.7, seed=3)])
def test_the_chosen_token_has_the_best_score(sampling: SamplingParams) -> None:
    engine = make_engine(RandomModel(vocab=20))
    text = [1, 2, 3]
    handle = engine.open(opening(text, sampling=sampling))
    for number in range(6):
        found = scores(engine.model, text, sampling, range(20))
        engine.submit(handle, round_after(text, number=number))
        outcomes = engine.step()
        while not outcomes:
            outcomes = engine.step()
        verdict = outcomes[0].result
        assert isinstance(verdict, Verdict)
        assert verdict.next_tokens == (int(np.argmax(found)),)
        text.append(verdict.next_tokens[0])


def test_what_the_sampling_excludes_has_no_score() -> None:
    engine = make_engine(RandomModel(vocab=20))
    sampling = SamplingParams(temperature=1.0, top_k=2)
    found = scores(engine.model, [1, 2], sampling, range(20))
    assert sum(np.isfinite(found)) == 2
