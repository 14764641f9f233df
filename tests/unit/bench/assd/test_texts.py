"""Held-out texts with holes: as many as are asked for, each with a mask of its own."""

from __future__ import annotations

from tokenizers import Tokenizer

from bench.assd.texts import masked_texts
from deployments.config import model_path


def test_texts_come_again_with_other_masks_where_there_are_no_more() -> None:
    read = Tokenizer.from_file(model_path("models/embedded/tokenizer/tokenizer.json"))
    few, many = (masked_texts(read, count, 128, 0.95) for count in (5, 400))
    assert len(few) == 5 and len(many) == 400
    assert len({(text.module, text.given, text.layout) for text in many}) == 400
    assert [text.seed for text in many] == list(range(400))
    assert {text.layout.length for text in many} == {128}
    assert {len(text.given) for text in many} == {6}
