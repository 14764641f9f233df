"""What a verifier that leads rounds has of the features that its drafter was not sent."""

import pytest

from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from verifier_service.drafters import FeaturesLost, UnsentFeatures


def opened(name: str = "f", begin: int = 0) -> VerifyOpen:
    return VerifyOpen(
        "s", (1, 2, 3), SamplingParams(), 8, (), features_hash=name, features_from=begin
    )


def test_each_feature_is_sent_once_and_to_one_drafter() -> None:
    unsent = UnsentFeatures(opened())
    unsent.check("f")
    assert unsent.take(4) is None
    unsent.decided(b"abc", 3)
    unsent.decided(b"d", 4)
    assert unsent.take(5) == b"abcd"
    assert unsent.take(5) == b"" and unsent.take(6) is None
    unsent.decided(b"e", 5)
    assert unsent.take(6) == b"e"
    with pytest.raises(FeaturesLost):
        unsent.check("f")
    unsent.check("")


def test_a_session_that_moved_here_has_not_all() -> None:
    with pytest.raises(FeaturesLost):
        UnsentFeatures(opened(begin=2)).check("f")
    with pytest.raises(FeaturesLost):
        UnsentFeatures(opened()).check("others")


def test_too_many_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier_service.drafters._MOST_UNSENT", 3)
    unsent = UnsentFeatures(opened())
    unsent.decided(b"abcd", 3)
    for use in (lambda: unsent.take(4), lambda: unsent.check("f")):
        with pytest.raises(FeaturesLost):
            use()
