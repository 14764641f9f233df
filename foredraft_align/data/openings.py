"""First words of users' turns: what a target is given to begin a question of its own with.

From the empty template alone a target asks much of the same. A third of the turns begin with
nothing. None ends with a space, which would be a token of its own.
"""

from __future__ import annotations

_CODE = (
    "Complete this Python function. Answer with the whole function in one code block.\n\n"
    "```python\n"
)

OPENINGS = (
    *[""] * 24,
    *[f"{_CODE}def"] * 6,
    *[f"{_CODE}from typing import List\n\n\ndef"] * 6,
    *[f"{_CODE}import math\n\n\ndef"] * 2,
    "Write a Python function that",
    "Write a Python function to",
    "Write a function in Python which takes",
    "Implement a",
    "Fix the bug in this code:\n```python\ndef",
    "Explain this code:\n```python\n",
    "Write a short story about",
    "Write an email to",
    "Write a poem about",
    "Write a paragraph about",
    "Write a blog post about",
    "Write",
    "You are a",
    "Pretend you are",
    "Imagine that",
    "Act as",
    "If",
    "A train",
    "Solve",
    "Calculate",
    "What is the",
    "What are the",
    "What would happen if",
    "How many",
    "How much",
    "How do",
    "How does",
    "How can I",
    "Why do",
    "Why is",
    "Which",
    "Who",
    "When",
    "Where",
    "Extract the",
    "List",
    "Given the following text,",
    "Summarize",
    "Rewrite the following sentence",
    "Translate",
    "Identify the",
    "Compare",
    "Describe",
    "Explain",
    "Discuss",
    "Give me",
    "Tell me about",
    "Can you",
    "Could you",
    "Please",
    "I need",
    "I want to",
    "I have a",
    "My friend",
    "Let's",
    "Suppose",
    "Provide",
    "Suggest",
    "Create a",
    "Design",
)
