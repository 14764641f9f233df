"""llama.cpp beside us: its answers as runs, its process, and the same weights in other types."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gguf
import numpy as np
import pytest

from bench.compare.beside import compare, find_peers
from bench.compare.gguf_files import convert, type_of
from bench.compare.llama_cpp import Variant, find, serving, speculates, to_run
from bench.compare.pairs import Pair
from bench.compare.rows import Run
from foredraft.errors import ConfigError, Unavailable

# Echoes the prompt backwards, as a draft of which one token was kept.
SERVER = """#!{python}
import http.server, json, sys

if "--help" in sys.argv:
    sys.exit(print("--spec-type none,ngram-simple"))
if "--broken" in sys.argv:
    sys.exit("error: no such model")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({{"status": "ok"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        timings = {{"draft_n": 4, "draft_n_accepted": 1}}
        self.answer({{"tokens": body["prompt"][::-1][: body["n_predict"]], "timings": timings}})

    def answer(self, values):
        text = json.dumps(values).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    file = tmp_path / "llama-server"
    file.write_text(SERVER.format(python=sys.executable))
    file.chmod(0o755)
    return file


def test_an_answer_is_a_run() -> None:
    plain = {"tokens": [5, 6, 7], "timings": {"predicted_n": 3}}
    assert to_run(plain, 2.0) == Run((5, 6, 7), 2.0)
    drafted = plain | {"timings": {"draft_n": 4, "draft_n_accepted": 1}}
    assert to_run(drafted, 2.0) == Run((5, 6, 7), 2.0, kept=1, drafted=4, draft_rounds=2)
    with pytest.raises(Unavailable, match="too long"):
        to_run({"error": {"message": "too long"}}, 1.0)


async def test_a_server_serves_until_the_context_ends(server: Path, tmp_path: Path) -> None:
    assert speculates(server)
    async with serving(server, Variant("plain", tmp_path / "a.gguf")) as client:
        run = await client.complete((1, 2, 3), 2)
    assert (run.tokens, run.kept) == ((3, 2), 1)


async def test_a_server_that_ends_says_why(server: Path, tmp_path: Path) -> None:
    broken = Variant("plain", tmp_path / "a.gguf", ("--broken",))
    with pytest.raises(Unavailable, match=r"a\.gguf: error: no such model"):
        async with serving(server, broken):
            pass


def test_what_is_missing_is_named(server: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_such_server"):
        find(tmp_path / "no_such_server")
    pair = cast(Pair, SimpleNamespace(chat=True))
    with pytest.raises(ConfigError, match="--gguf"):
        find_peers(pair, server, tmp_path / "no_such.gguf", tmp_path)


def write_gguf(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write a tiny Q4_1 model of a matrix and a vector, and return their values."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((4, 64), dtype=np.float32)
    vector = rng.standard_normal(64, dtype=np.float32)
    kind = gguf.GGMLQuantizationType.Q4_1
    packed = gguf.quants.quantize(matrix, kind)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_context_length(128)
    writer.add_chat_template("{{ messages }}")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_tensor("output.weight", packed, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", vector)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf.quants.dequantize(packed, kind), vector


@pytest.mark.parametrize(("name", "error"), [("BF16", 2**-8), ("Q8_0", 2**-7)])
def test_a_conversion_has_the_sources_metadata_and_values(
    tmp_path: Path, name: str, error: float
) -> None:
    source = tmp_path / "model.gguf"
    matrix, vector = write_gguf(source)
    assert type_of(source) == "Q4_1"
    out = convert(source, tmp_path / "out", name)
    assert type_of(out) == name
    assert convert(source, tmp_path / "out", name) == out
    assert [file.name for file in (tmp_path / "out").iterdir()] == [f"model.{name}.gguf"]
    before, after = (gguf.GGUFReader(file) for file in (source, out))
    assert before.fields.keys() == after.fields.keys()
    same = {key for key in after.fields if not key.startswith(("GGUF.", "general.file_type"))}
    for key in same:
        assert after.fields[key].contents() == before.fields[key].contents()
    tensors: dict[str, Any] = {tensor.name: tensor for tensor in after.tensors}
    found = tensors["output.weight"]
    values = gguf.quants.dequantize(found.data, found.tensor_type)
    np.testing.assert_allclose(values, matrix, atol=error * float(np.abs(matrix).max()))
    np.testing.assert_array_equal(tensors["output_norm.weight"].data, vector)


def test_a_conversion_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    with pytest.raises(ConfigError, match="type"):
        convert(source, tmp_path, "Q2_K")
    source.write_bytes(b"no model at all, but some bytes")
    with pytest.raises(ConfigError, match="cannot be read"):
        convert(source, tmp_path, "BF16")


def test_ours_is_compared_with_their_bf16_and_their_best() -> None:
    def runs(*seconds: float) -> list[Run]:
        return [Run((1, 2), each) for each in seconds]

    ours = {"plain": runs(1.0, 1.0, 1.0), "as configured": runs(0.5, 0.25, 0.5)}
    theirs = {"BF16 plain": runs(2.0, 2.0, 1.0), "Q8_0 plain": runs(0.5, 1.0, 1.0)}
    found = compare("chat", ours, theirs)
    assert [(one.ours, one.theirs, one.ratio) for one in found] == [
        ("plain", "BF16 plain", 2.0),
        ("plain", "Q8_0 plain", 1.0),
        ("as configured", "Q8_0 plain", 2.0),
    ]
    assert (found[0].low, found[0].high) == (1.0, 2.0)
    assert str(found[2]) == (
        "chat: as configured against llama.cpp Q8_0 plain: 2.00x (1.00 to 4.00)"
    )
