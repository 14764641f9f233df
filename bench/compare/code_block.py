"""The Python code of a chat model's answer."""

from __future__ import annotations

import ast
import re
from textwrap import dedent

# An answer that ran out of tokens leaves its last block open.
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_KEPT = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


def code_block(answer: str, entry_point: str) -> str:
    """Return the answer's first code block that defines entry_point, else its first block.

    An answer without a block is code as a whole.
    """
    blocks = [dedent(block) for block in _FENCED.findall(answer)] or [answer]
    defines = re.compile(rf"^(async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    return next((block for block in blocks if defines.search(block)), blocks[0])


def definitions(code: str) -> str:
    """Return the code's imports, definitions and assignments, without the calls that show its use.

    Code that is not Python is returned as it is: running it shows what is wrong.
    """
    try:
        module = ast.parse(code)
    except (SyntaxError, ValueError):
        return code
    module.body = [node for node in module.body if isinstance(node, _KEPT)]
    return ast.unparse(module)


def program(prompt: str, answer: str, entry_point: str, test: str) -> str:
    """Return a program that fails unless the answer's function passes HumanEval's test.

    The prompt comes first, for its imports and helpers; the answer's function replaces its stub.
    """
    code = definitions(code_block(answer, entry_point))
    return f"{prompt}\n    pass\n\n{code}\n\n{test}\n\ncheck({entry_point})\n"
