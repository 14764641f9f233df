"""The stages of a run in one process, and what is refused before anything is written."""

from dataclasses import replace

import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.models.embedded.block_causal import BlockCausalDLM
from foredraft.errors import ConfigError
from foredraft_align.data.write import WritePlan, write_shards
from foredraft_align.kinds import Shape
from foredraft_align.loop.train import Progress, TrainPlan, train
from foredraft_align.run import AlignPlan, align, prepare
from tests.support.align.texts import counting, write_chat_target


class Here:
    """Workers that are this process; `trained` says how often they were asked to."""

    trained = 0

    def write(self, plan):
        write_shards(plan, range(plan.shards))

    def train(self, plan, make, report):
        self.trained += 1
        train(plan, make, 0, 1, report)


@pytest.fixture
def target(tmp_path):
    return write_chat_target(tmp_path / "target", "llama").folder


def plans(target, out, kind="tokens", start=None):
    plan = AlignPlan(Shape(target, 1, 4, 64, start, 0), out, kind, ())
    write = WritePlan(target, out / "texts", 1, 12, 12, 16, 96)
    training = TrainPlan(
        out,
        write.folder,
        (),
        (),
        steps=3,
        batch=2,
        rows=8,
        block_sizes=(2, 4),
        block_shares=(0.5, 0.5),
        evaluate_steps=100,
    )
    return plan, write, training


@pytest.mark.parametrize("kind", ["tokens", "features"])
def test_from_a_target_to_a_drafter(target, tmp_path, kind):
    said: list[str] = []
    steps: list[Progress] = []
    workers = Here()
    align(*plans(target, tmp_path / "out", kind), workers, said.append, steps.append)
    assert [each.step for each in steps] == [1, 2, 3] and steps[-1].held_out is not None
    built = BlockCausalDLM.load(tmp_path / "out", torch.float32, target)
    assert bool(built.config.target_layer_ids) == (kind == "features")
    assert len(built.token_ids) == 64 and built.config.eos_token_id in built.token_ids
    assert "texts to train on" in said[1]
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "| 3 x 2, 8 |" in card and ("hidden states" in card) == (kind == "features")
    # On from there, one layer more.
    again = plans(target, tmp_path / "more", kind, start=tmp_path / "out")
    shape = replace(again[0].shape, layers=2)
    align(replace(again[0], shape=shape), *again[1:], workers, said.append, steps.append)
    assert len(BlockCausalDLM.load(tmp_path / "more", torch.float32, target).layers) == 2


def test_a_drafter_in_a_public_format(target, tmp_path):
    workers = Here()
    said: list[object] = []
    align(*plans(target, tmp_path / "out", "sdar"), workers, said.append, said.append)
    config = DrafterConfig(model=tmp_path / "out", max_mask_slots=4)
    engine = load_engine(config)
    assert engine.info.eos_token_ids and "SDAR" in (tmp_path / "out" / "MODEL_CARD.md").read_text()
    again = plans(target, tmp_path / "more", "sdar", start=tmp_path / "out")
    align(*again, workers, said.append, said.append)


def test_texts_of_another_kind_are_named(target, tmp_path):
    texts, states = counting(12, 20)
    (tmp_path / "out" / "texts").mkdir(parents=True)
    plan, write, training = plans(target, tmp_path / "out", "features")
    texts.save(write.path(0), states)
    workers = Here()
    with pytest.raises(ConfigError, match="have 0 hidden values") as raised:
        align(plan, write, training, workers, print, print)
    assert raised.value.param == "kind" and not workers.trained


def test_prompts_that_leave_no_room_are_named(target, tmp_path):
    plan, write, training = plans(target, tmp_path / "out")
    with pytest.raises(ConfigError, match="max_tokens is 96: with prompts of 90"):
        align(plan, replace(write, max_question=90), training, Here(), print, print)
    assert not (tmp_path / "out").exists()


def test_an_earlier_training_is_not_dropped_in_silence(tmp_path):
    (tmp_path / "run" / "step-4").mkdir(parents=True)
    with pytest.raises(ConfigError, match="--resume, or drop it with --fresh"):
        prepare(tmp_path, resume=False, fresh=False)
    prepare(tmp_path, resume=True, fresh=False)
    assert (tmp_path / "run").exists()
    prepare(tmp_path, resume=False, fresh=True)
    assert not (tmp_path / "run").exists()
