"""Options that the training commands share."""

from __future__ import annotations

import pytest
import torch
import typer

from training.options import checked_device


@pytest.mark.parametrize(
    ("device", "ranks", "there", "message"),
    [
        ("tpu", 1, True, "expected cpu or cuda, not tpu"),
        ("cuda", 1, False, "finds no CUDA device"),
        ("cuda", 2, True, "takes --ranks 1, not 2"),
    ],
)
def test_a_device_that_cannot_train_is_refused(
    device: str, ranks: int, there: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    with pytest.raises(typer.BadParameter, match=message):
        checked_device(device, ranks)


def test_several_processes_train_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert checked_device("cpu", 2) == "cpu" and checked_device("cuda", 1) == "cuda"
