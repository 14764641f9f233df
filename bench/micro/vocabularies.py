"""Drafting for a target of another tokenizer: bench.micro.vocabularies (DiffuSpec appendix E).

The embedded pair has one tokenizer, so its target is made to speak others: what it writes at
temperature 0 after held-out prompts is replayed, token by token, in a byte-level vocabulary and in
one that writes spaces as U+2581, both trained here on the standard library's sources. A round
drafts after what was replayed so far, keeps what agrees, and receives one token more. Tokens of
different vocabularies are of different lengths, so bytes for each round are what compares.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.micro.path_search import EMBEDDED, VERIFIED, continuation, right
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.proposals.proposals import Drafted
from foredraft.decoding.prefix import hash_prefix
from foredraft.messages import DraftBlock, DraftOpen, Propose
from foredraft.types import Base, Proposal, SamplingParams
from foredraft.vocabulary import Vocabulary
from foredraft_cli.prompts.held_out import prompts
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.port import alloc

OWN = EMBEDDED / "tokenizer" / "tokenizer.json"
END = "<|endoftext|>"
TRAINED_ON = 2_000_000
WAYS = ((Proposal.COUPLED, 15), (Proposal.TREE, 16))
# One word, number or run of others with the space before it; a line's end and its indentation are
# apart, where the embedded tokenizer has them together.
WORDS = r"\n| ?[A-Za-z_]+| ?\d+| ?[^ A-Za-z_\d\n]+| +"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A prompt and what the target writes behind it, as text."""

    prompt: str
    text: str


def written(texts: Sequence[str], count: int) -> list[Replayed]:
    """Return the embedded target's own next tokens behind each text, at temperature 0."""
    target = load_target(VerifierConfig(model=EMBEDDED / "target"))
    tokenizer = Tokenizer.from_file(str(OWN))
    replayed = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        blocks = alloc(target, len(ids) + count + VERIFIED)
        replayed.append(
            Replayed(text, tokenizer.decode(continuation(target, blocks, ids, count)[len(ids) :]))
        )
        target.pool.give(blocks)
    return replayed


def sources() -> Iterator[str]:
    """Yield files of the standard library, TRAINED_ON bytes in all."""
    left = TRAINED_ON
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")[:left]
        left -= len(text)
        yield text


def byte_level(size: int) -> Tokenizer:
    """Return GPT-2's kind of tokenizer, trained on sources."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return train(tokenizer, size, [END], alphabet)


def spaced(size: int) -> Tokenizer:
    """Return Llama's kind of tokenizer, trained on sources; rare letters are bytes."""
    unknown = "<unk>"
    tokenizer = Tokenizer(models.BPE(unk_token=unknown, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    raw = json.loads(train(tokenizer, size, [END, unknown, *octets], []).to_str())
    # The trainer takes what must be in the vocabulary as special; a byte is not.
    raw["added_tokens"] = [each for each in raw["added_tokens"] if each["content"] not in octets]
    return Tokenizer.from_str(json.dumps(raw))


def train(tokenizer: Tokenizer, size: int, special: list[str], alphabet: list[str]) -> Tokenizer:
    """Return the tokenizer, trained."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=alphabet,
        limit_alphabet=512,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sources(), trainer)
    return tokenizer


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    """Write the tokenizer and what its end-of-text token is; return the former's path."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder / "tokenizer.json"


def shared(one: Path, other: Path) -> float:
    """Return the share of the other's tokens that one has, too."""
    mine, theirs = Vocabulary(one).ids, Vocabulary(other).ids
    return len(mine.keys() & theirs.keys()) / len(theirs)


def line(
    name: str, replayed: Sequence[Replayed], file: Path, proposal: Proposal, nodes: int
) -> str:
    """Return a row: what a drafter, bridged where file is not its own, gets right."""
    bridge = None if file == OWN else file
    engine = load_engine(DrafterConfig(model=EMBEDDED / "drafter", target_tokenizer=bridge))
    vocabulary = Vocabulary(file)
    rounds = kept = 0
    for each in replayed:
        prompt, text = (vocabulary.write(part.encode()) for part in (each.prompt, each.text))
        opened = DraftOpen("bench", tuple(prompt), SamplingParams(), proposal, engine.info.max_len)
        handle, _ = engine.open(opened)
        at = 0
        while at < len(text) - 1:
            prefix = (*prompt, *text[:at])
            base = Base("bench", rounds, len(prefix), hash_prefix(prefix))
            [block] = engine.propose([(handle, Propose(base, 0, prefix, nodes))])
            assert isinstance(block, DraftBlock), block
            held = right(Drafted(block.tokens, 0, 0, block.parents), text[at:])
            rounds, kept, at = rounds + 1, kept + held, at + held + 1
        engine.close(handle)
    size = sum(len(each.text.encode()) for each in replayed)
    both = "own" if bridge is None else f"{shared(OWN, file):.0%}"
    return (
        f"| {name} | {len(vocabulary.spelling)} | {both} | `{proposal}` | {kept / rounds:.2f} "
        f"| {size / rounds:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=96, help="of the target's own, for each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    replayed = written(prompts(args.prompts), args.tokens)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [
            ("the drafter's", OWN),
            ("byte-level", saved(byte_level(4096), folder / "bytes")),
            ("byte-level, larger", saved(byte_level(16_384), folder / "larger")),
            ("U+2581", saved(spaced(8192), folder / "spaced")),
        ]
        lines = [
            "| the target's tokenizer | tokens | shared | proposal | kept per round | bytes |",
            "|---|---|---|---|---|---|",
            *(line(name, replayed, file, *way) for name, file in files for way in WAYS),
        ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
