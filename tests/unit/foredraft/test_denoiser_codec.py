"""The denoiser's records travel whole; what is out of range is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.codec import denoiser as codec
from foredraft.denoising import Advance, Advanced, DenoiseOpen, Dynamic, Static
from foredraft.errors import InvalidRequest
from foredraft.types import Base, SamplingParams, Timings
from foredraft.v1 import denoiser_pb2

u32 = st.integers(0, (1 << 32) - 1)
words = st.text("abcXYZ019-_ ", min_size=1, max_size=20)
tokens = st.lists(u32, max_size=20).map(tuple)
bases = st.builds(Base, words, u32, st.integers(0, 1 << 20), st.integers(0, (1 << 64) - 1))
opens = st.builds(
    DenoiseOpen,
    words,
    st.lists(u32, min_size=1, max_size=20).map(tuple),
    st.builds(SamplingParams, st.floats(0, 2), u32, seed=st.integers(0, (1 << 64) - 1)),
    st.integers(1, 1 << 20),
    st.builds(Static, st.integers(1, 1024)) | st.builds(Dynamic, st.floats(0, 0.99)),
    st.integers(0, 64),
    tokens,
    st.text(max_size=20),
    st.lists(words, max_size=4).map(tuple),
)
advances = st.builds(Advance, bases, st.integers(1, 4096))
states = st.lists(st.integers(-1, (1 << 31) - 1), max_size=20).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> Advanced:
    calls, accepted = draw(st.integers(1, 4096)), draw(st.integers(0, 1 << 20))
    timings = draw(st.builds(Timings, u32, u32, u32))
    block = draw(states)
    return Advanced(draw(bases), draw(tokens), block, calls + accepted, accepted, calls, timings)


@given(opens)
def test_an_open_survives_the_wire(record: DenoiseOpen) -> None:
    data = codec.denoise_open_to_pb(record).SerializeToString()
    assert codec.denoise_open_from_pb(denoiser_pb2.DenoiseOpen.FromString(data)) == record


@given(advances)
def test_an_advance_survives_the_wire(record: Advance) -> None:
    data = codec.advance_to_pb(record).SerializeToString()
    assert codec.advance_from_pb(denoiser_pb2.Advance.FromString(data)) == record


@given(answers())
def test_an_answer_survives_the_wire(record: Advanced) -> None:
    data = codec.advanced_to_pb(record).SerializeToString()
    assert codec.advanced_from_pb(denoiser_pb2.Advanced.FromString(data)) == record


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("committed length", {"committed": [1] * ((1 << 20) + 1)}),
        ("block length", {"block": [-1] * 1025}),
        ("block", {"block": [1, -2]}),
        ("calls", {"calls": 0, "steps": 0}),
        ("accepted", {"accepted": (1 << 20) + 1}),
        ("steps", {"steps": 3}),
        ("session_id", {"base": {"session_id": ""}}),
    ],
)
def test_a_broken_answer_names_its_field(field: str, changes: dict) -> None:
    good = {"base": {"session_id": "s"}, "block": [1, -1], "steps": 2, "accepted": 1, "calls": 1}
    codec.advanced_from_pb(denoiser_pb2.Advanced(**good))
    with pytest.raises(InvalidRequest) as refused:
        codec.advanced_from_pb(denoiser_pb2.Advanced(**(good | changes)))
    assert refused.value.param == field
