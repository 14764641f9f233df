"""Prompts about code for the texts that SmolLM2's drafter is trained on.

The target's own questions are seldom about code. Signatures and docstrings of the standard library
and of two well documented packages are, and none of them is an evaluation prompt.
"""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from foredraft_cli.prompts import human_eval
from foredraft_cli.prompts.sets import chat_prompts

_REQUESTS = (
    "Complete this Python function. Answer with the whole function in one code block.\n\n"
    "```python\n{stub}\n```",
    "Complete the following function:\n\n```python\n{stub}\n```",
    "Implement this function in Python.\n\n{stub}",
    "Write the body of this function.\n```python\n{stub}\n```\nAnswer with code alone.",
    "```python\n{stub}\n```\n\nFinish this code and explain it briefly.",
    "Write a Python function `{name}`. {doc}",
    "I need a Python function that does this: {doc} Please add an example of its use.",
    "How would you write a function `{name}` in Python? {doc}",
)
_PACKAGES = ("networkx", "sympy")
_LONGEST = 480
"""Characters of a stub; a longer one would be cut off."""


def stubs(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, signature with docstring, and the docstring's first sentence of a file's
    functions that have arguments and a docstring.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("test"):
            continue
        doc = ast.get_docstring(node)
        names = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
        if not doc or not names:
            continue
        body = "\n".join(f"    {line}" if line else "" for line in doc.splitlines())
        stub = f'def {node.name}({", ".join(names)}):\n    """{body.lstrip()}\n    """'
        if len(stub) <= _LONGEST:
            yield node.name, stub, " ".join(doc.split("\n\n")[0].split())


def code_prompts(seed: int) -> list[str]:
    """Return one request for each function, in a random order."""
    random = np.random.default_rng(seed)
    found: dict[str, tuple[str, str, str]] = {}
    for file in _files():
        try:
            found |= {stub: (name, stub, doc) for name, stub, doc in stubs(file.read_text())}
        except (SyntaxError, UnicodeDecodeError):
            continue
    chosen = [list(found.values())[at] for at in random.permutation(len(found))]
    forms = random.integers(len(_REQUESTS), size=len(chosen))
    return [
        _REQUESTS[form].format(name=name, stub=stub, doc=doc)
        for form, (name, stub, doc) in zip(forms, chosen, strict=True)
    ]


def _files() -> Iterator[Path]:
    library, packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    skipped = {"site-packages", "test", "tests", "lib2to3"}
    yield from (
        file for file in sorted(library.rglob("*.py")) if not skipped.intersection(file.parts)
    )
    for name in _PACKAGES:
        yield from sorted((packages / name).rglob("*.py"))


def write(folder: Path, seed: int = 0) -> None:
    """Write code.jsonl, and evaluation.jsonl with what must not be trained on."""
    folder.mkdir(parents=True, exist_ok=True)
    evaluation = [one.prompt for one in chat_prompts()]
    evaluation += [task.message for task in human_eval.tasks()]
    for name, prompts in (("code", code_prompts(seed)), ("evaluation", evaluation)):
        lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        (folder / f"{name}.jsonl").write_text(lines)


if __name__ == "__main__":
    write(Path("build/smollm2"))
