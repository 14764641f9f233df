"""The training data: conversations, continuous batches, storage, selection."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from foredraft.errors import ConfigError, WeightsError
from foredraft_align.data.chat import ChatFormat, ChatTokenizer
from foredraft_align.data.conversation import begun, given
from foredraft_align.data.generate import Writer, choose
from foredraft_align.data.select import OVERLAP, of_evaluation, select, shortlist
from foredraft_align.data.store import Store
from foredraft_align.data.texts import Texts
from foredraft_align.data.write import WritePlan, conversations, read_prompts
from tests.support.alignment import counting, write_chat_target
from tests.support.checkpoints import write_target
from verifier_service.kv.block_pool import BlockPool

END, BETWEEN = 2, (2, 10, 11)
CHAT = ChatFormat((1, 9), BETWEEN, frozenset({END}))


def test_a_template_is_taken_apart(tmp_path):
    target = write_chat_target(tmp_path)
    tokenizer = ChatTokenizer(target.folder)
    found = tokenizer.format
    start, end = (target.tokenizer.token_to_id(f"<|im_{each}|>") for each in ("start", "end"))
    assert found.before[0] == start and found.between[0] == end
    assert tokenizer.text(found.before).strip() == "user"
    assert tokenizer.text(found.between).split() == ["assistant"]
    assert end in found.ends


def test_a_base_model_begins_with_bos_or_eos(tmp_path):
    target = write_target(tmp_path / "base", "qwen3")
    found = ChatTokenizer(target.folder).format
    assert found.before == target.ends[:1] and found.between == ()


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(WeightsError, match=r"no tokenizer\.json"):
        ChatTokenizer(tmp_path)


def test_the_target_ends_its_question_and_answers_it():
    talk = begun((5,), 0.0, (4, 20), CHAT)
    assert talk.unread == [1, 9, 5] and talk.answer_from is None
    talk.add(6)
    assert talk.unread == [6] and talk.sampling_temperature > 0
    talk.add(END)
    assert talk.tokens == [1, 9, 5, 6, *BETWEEN] and talk.unread == list(BETWEEN)
    assert talk.answer_from == 7 and talk.sampling_temperature == 0
    talk.add(7)
    assert not talk.ended
    talk.add(END)
    assert talk.ended and talk.tokens[7:] == [7, END]


def test_long_questions_and_answers_are_cut():
    talk = begun((), 0.0, (3, 12), CHAT)
    for token in (20, 21, 22):
        talk.add(token)
    assert talk.answer_from is None
    talk.add(23)
    assert talk.tokens == [1, 9, 20, 21, 22, *BETWEEN]
    while not talk.ended:
        talk.add(30)
    assert len(talk.tokens) == 12
    assert given((4, 5, 6, 7), 1.0, (3, 12), CHAT).tokens == [1, 9, 4, 5, 6, *BETWEEN]


class CountingTarget:
    """A target whose next token is the last one + 1, in a paged pool that it watches."""

    block_tokens = 64

    def __init__(self, blocks):
        self.pool = BlockPool(blocks)
        self.passes = SimpleNamespace(fused=self.fused)
        self.rows = []

    def flat(self, segments):
        tokens = [token for segment in segments for token in segment.tokens]
        ends = np.cumsum([len(segment.tokens) for segment in segments]) - 1
        self.rows.append(len(segments))
        return SimpleNamespace(tokens=tokens, wanted=ends)

    def fused(self, flat, rows, fusion):
        logits = np.full((len(flat.wanted), 64), -20, np.float32)
        for row, at in enumerate(flat.wanted):
            logits[row, (flat.tokens[at] + 1) % 64] = 20
        return logits, np.array(flat.tokens, np.uint16)[:, None]


def test_texts_share_passes_and_give_way_to_each_other():
    target = CountingTarget(blocks=7)
    talks = [
        given((60 - length,), 0.0, (1, 40), ChatFormat((1,), (), frozenset({62})))
        for length in (3, 30, 5, 9)
    ]
    for talk in talks:
        talk.answer_from = len(talk.tokens)
    texts, states = Writer(target, 2, (0,)).write(talks, 0)
    assert [texts.text(i)[0] for i in range(4)] == [1] * 4
    assert [texts.text(i)[-1] for i in range(4)] == [62] * 4
    assert [len(texts.text(i)) for i in range(4)] == [7, 34, 9, 13]
    assert max(target.rows) == 2 and target.pool.available == target.pool.total
    # What was read of each token lies beside it; the last one was never read.
    for i in range(4):
        begin, end = texts.starts[i], texts.starts[i + 1]
        assert states[begin : end - 1, 0].tolist() == texts.text(i)[:-1].tolist()
        answer = slice(begin + texts.answers[i], end)
        assert texts.top_ids[answer, 0].tolist() == texts.tokens[answer].tolist()


def test_sampling_is_the_targets_at_the_texts_temperature():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2] + [1e-9] * 20])).repeat(6000, 1)
    temperature = torch.full((6000,), 0.5)
    temperature[:2000] = 0
    _, log_probs, chosen = choose(logits, temperature, torch.Generator().manual_seed(0))
    assert (chosen[:2000] == 0).all()
    share = torch.bincount(chosen[2000:], minlength=3)[:3] / 4000
    assert share.tolist() == pytest.approx([0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38], abs=0.02)
    assert np.exp(log_probs[0, :3]) == pytest.approx([0.5, 0.3, 0.2], abs=1e-3)


def test_stored_texts_are_read_one_by_one(tmp_path):
    for number in range(2):
        texts, states = counting(3, 10 + number, states=4)
        texts.save(tmp_path / f"{number}.safetensors", states)
    store = Store(tmp_path)
    assert len(store) == 6 and [store.length(i) for i in (0, 5)] == [10, 11]
    text = store.text(4)
    loaded = Texts.load(tmp_path / "1.safetensors")
    assert text.tokens.tolist() == loaded.text(1).tolist() == store.tokens(4)[0].tolist()
    assert text.states.shape == (11, 4) and text.answer == 4
    with pytest.raises(ConfigError, match="there are no texts"):
        Store(tmp_path / "none")


def test_texts_without_states_are_stored_and_read(tmp_path):
    texts, states = counting(2, 8)
    texts.save(tmp_path / "0.safetensors", states)
    assert Store(tmp_path).text(1).states.shape == (8, 0)


def test_duplicates_evaluation_prompts_and_empty_answers_are_dropped(tmp_path):
    texts, states = counting(6, 20)
    tokens = texts.tokens.reshape(6, 20).copy()
    tokens[1] = tokens[0]
    texts.tokens[:] = tokens.reshape(-1)
    texts.answers[2] = 20
    texts.save(tmp_path / "0.safetensors", states)
    forbidden = of_evaluation([tokens[3, 2 : 2 + OVERLAP].tolist()])
    found = select(Store(tmp_path), forbidden, 1, seed=0)
    assert (found.duplicates, found.overlaps, found.empty) == (1, 1, 1)
    assert sorted((*found.train, *found.held_out)) == [0, 4, 5]


def test_what_all_evaluation_prompts_share_forbids_nothing():
    form = list(range(100, 100 + OVERLAP))
    prompts = [[*form, *range(at, at + OVERLAP)] for at in range(0, 60, 10)]
    forbidden = of_evaluation(prompts)
    assert tuple(form) not in forbidden and tuple(range(OVERLAP)) in forbidden


def test_the_shortlist_is_the_most_frequent_and_what_is_needed(tmp_path):
    texts, states = counting(3, 12)
    texts.tokens[:] = np.tile([9, 9, 9, 9, 7, 7, 7, 7, 6, 6, 5, 4], 3)
    texts.save(tmp_path / "0.safetensors", states)
    found, coverage = shortlist(Store(tmp_path), range(3), 3, 50, needed=(40,))
    assert found == (6, 7, 40) and coverage == pytest.approx(6 / 8)
    assert shortlist(Store(tmp_path), range(3), 0, 50, ())[0] == tuple(range(50))


def test_a_shards_conversations_depend_on_the_plan_alone(tmp_path):
    target = write_chat_target(tmp_path / "t")
    (tmp_path / "p.jsonl").write_text('{"prompt": "the dog sleeps"}\n')
    plan = WritePlan(target.folder, tmp_path, shards=2, texts=12, prompts=tmp_path / "p.jsonl")
    tokenizer, prompts = ChatTokenizer(target.folder), read_prompts(tmp_path / "p.jsonl")
    first = conversations(plan, 0, tokenizer, prompts)
    assert [c.tokens for c in first] == [
        c.tokens for c in conversations(plan, 0, tokenizer, prompts)
    ]
    assert [c.tokens for c in first] != [
        c.tokens for c in conversations(plan, 1, tokenizer, prompts)
    ]
    assert {c.temperature for c in first} == {0.0, 0.8, 1.0}
    assert 0 < sum(c.answer_from is not None for c in first) < 12
    with pytest.raises(ConfigError, match="JSON lines with a prompt"):
        read_prompts(tmp_path / "t" / "config.json")
