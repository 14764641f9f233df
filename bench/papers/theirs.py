"""What the papers print, copied from their tables and text; None where a paper gives no figure.

DiffuSpec: Qwen2.5-32B with Dream-7B, A100, Spec-Bench. DEER: Qwen targets with a 0.5B drafter, code
benchmarks. SpecDiff: GPT-2 XL and GPT-NEO with MDLM 110M, A100.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """Speedup over plain decoding, and mean accepted tokens per round."""

    speedup: float | None = None
    mat: float | None = None


class Alpha(NamedTuple):
    """Speedup over plain decoding, and the share of tested draft tokens that is accepted."""

    speedup: float | None
    alpha: float


# Table 1: each task's speedup, then the mean as printed; SpecDiff's is not that of its tasks.
DIFFUSPEC_TASKS = ("MT", "Trans", "Sum", "QA", "Math", "RAG")
DIFFUSPEC_TABLE_1: dict[str, tuple[tuple[float, ...], Figure]] = {
    "Lookahead": ((1.37, 1.16, 1.15, 1.33, 1.52, 1.21), Figure(1.30, 1.82)),
    "PLD": ((1.83, 1.29, 2.76, 1.87, 1.55, 2.37), Figure(1.93, 2.11)),
    "Recycling": ((2.15, 1.85, 2.03, 2.06, 2.45, 1.83), Figure(2.07, 3.13)),
    "SAMD": ((1.99, 1.54, 3.38, 2.44, 1.63, 3.27), Figure(2.35, 2.18)),
    "EAGLE2": ((2.47, 1.56, 1.64, 1.91, 3.18, 1.64), Figure(2.09, 3.47)),
    "EAGLE3": ((3.01, 2.35, 3.03, 2.41, 3.12, 2.86), Figure(2.80, 4.28)),
    "SPS": ((1.69, 1.64, 1.74, 1.50, 1.86, 1.62), Figure(1.67, 6.18)),
    "SpecDiff": ((2.65, 2.61, 1.96, 2.41, 2.95, 2.02), Figure(2.69, 6.05)),
    "Minions": ((3.02, 3.18, 2.37, 2.93, 3.91, 2.29), Figure(2.97, 6.44)),
    "DiffuSpec": ((3.09, 3.38, 2.41, 3.03, 4.02, 2.38), Figure(3.08, 6.99)),
}

# Table 2, by (CPS, ADL).
DIFFUSPEC_TABLE_2 = {
    (True, True): Figure(3.08, 6.99),
    (True, False): Figure(2.98, 6.95),
    (False, True): Figure(2.73, 6.43),
    (False, False): Figure(2.69, 6.05),
}

# Table 4, by (CPS, ADL), one figure for each of DIFFUSPEC_TASKS.
DIFFUSPEC_TABLE_4: dict[tuple[bool, bool], tuple[Figure, ...]] = {
    (True, True): (
        Figure(3.12, 7.02),
        Figure(3.40, 7.35),
        Figure(2.45, 6.25),
        Figure(3.05, 7.49),
        Figure(4.05, 7.61),
        Figure(2.40, 8.04),
    ),
    (True, False): (
        Figure(3.01, 6.98),
        Figure(3.28, 7.29),
        Figure(2.37, 6.18),
        Figure(2.92, 7.40),
        Figure(3.88, 7.55),
        Figure(2.34, 7.96),
    ),
    (False, True): (
        Figure(2.70, 6.41),
        Figure(2.79, 6.72),
        Figure(2.11, 5.88),
        Figure(2.55, 6.92),
        Figure(3.11, 7.00),
        Figure(2.14, 7.25),
    ),
    (False, False): (
        Figure(2.65, 6.03),
        Figure(2.61, 6.48),
        Figure(1.96, 5.72),
        Figure(2.41, 6.75),
        Figure(2.95, 6.82),
        Figure(2.02, 7.08),
    ),
}

# Table 5, by the fixed length; "ADL" is the controller.
DIFFUSPEC_TABLE_5 = {
    "k=10": Figure(2.74, 5.53),
    "k=20": Figure(2.98, 6.56),
    "k=30": Figure(2.98, 6.49),
    "k=50": Figure(2.91, 6.51),
    "k=100": Figure(2.78, 6.69),
    "ADL": Figure(3.08, 6.99),
}

# Sec. 5.1, on Fig. 4: CPS's share of a round's time. The bars themselves have no numbers.
DIFFUSPEC_CPS_SHARE = 0.011

# Sec. 5.3, on Fig. 5a, by S.
DIFFUSPEC_STEPS = {1: Figure(3.08, 6.99), 10: Figure(0.93, 7.33)}
# Sec. 5.3, on Fig. 5b-5d: where MAT or speed peaks or stops to grow.
DIFFUSPEC_PEAKS: dict[str, tuple[float, ...]] = {"B": (3, 4), "M_max": (15,), "tau": (0.8,)}

# Tables 1 and 2: the mean over four code benchmarks, by temperature, target and method.
DEER_MEANS: dict[float, dict[str, dict[str, Figure]]] = {
    0.6: {
        "Qwen3-4B": {"EAGLE-3": Figure(1.91, 2.54), "DEER": Figure(2.52, 4.41)},
        "Qwen3-8B": {"EAGLE-3": Figure(1.80, 2.92), "DEER": Figure(2.63, 4.06)},
        "Qwen2-7B": {"EAGLE-3": Figure(2.35, 3.18), "DEER": Figure(2.52, 3.90)},
        "Qwen3-14B": {"EAGLE-3": Figure(1.89, 2.39), "DEER": Figure(3.13, 4.39)},
        "Qwen3-30B-A3B": {"EAGLE-3": Figure(2.01, 2.40), "DEER": Figure(3.62, 4.45)},
    },
    0.0: {
        "Qwen3-4B": {
            "Medusa": Figure(1.23, 1.94),
            "Hydra": Figure(2.22, 2.58),
            "EAGLE-3": Figure(2.40, 3.31),
            "DEER": Figure(2.77, 4.61),
        },
        "Qwen3-8B": {
            "Medusa": Figure(1.32, 1.97),
            "Hydra": Figure(2.25, 2.66),
            "EAGLE-3": Figure(2.48, 3.45),
            "DEER": Figure(2.83, 4.61),
        },
        "Qwen2-7B": {"EAGLE-3": Figure(2.43, 3.22), "DEER": Figure(2.70, 4.11)},
        "Qwen3-14B": {"EAGLE-3": Figure(2.39, 3.54), "DEER": Figure(2.98, 4.82)},
        "Qwen3-30B-A3B": {"EAGLE-3": Figure(2.21, 3.05), "DEER": Figure(4.04, 5.03)},
    },
}

# Table 3: accepted tokens on Qwen3-30B-A3B, (without, with stage II) by benchmark.
DEER_TABLE_3 = {
    "MBPP": (4.74, 4.87),
    "CodeAlpacaPy": (3.47, 4.04),
    "HumanEval": (5.38, 6.58),
    "LiveCodeBench": (3.87, 5.03),
}

# Fig. 6: stable, noisy, diverging.
DEER_ALPHAS = (1.01, 1.02, 1.05)

# Table 4: longest accepted length in tokens, (EAGLE-3, DEER) by target.
DEER_TABLE_4 = {
    "Qwen3-4B": (8, 32),
    "Qwen3-8B": (8, 32),
    "Qwen3-14B": (8, 32),
    "Qwen3-30B-A3B": (7, 32),
}

# Table 5: tokens/s on HumanEval without a KV cache, by batch.
DEER_TABLE_5 = {
    "AR": {2: 34.03, 4: 32.50, 8: 38.35, 16: 49.76},
    "DEER": {2: 82.97, 4: 103.95, 8: 159.87, 16: 175.66},
}

# Sec. 4.2.2, on Fig. 4: share of rounds that accept at least this many tokens.
DEER_LONG = 8
DEER_LONG_SHARE = 0.15
DEER_LONG_SHARES = {"Qwen3-4B": 0.158, "Qwen3-30B-A3B": 0.166}

# Table 4, without initialisation; Table 2, with it. Table 2's text at hand has no speedups.
SPECDIFF_WITHOUT = {
    "CNN/DM, GPT-2 XL": Alpha(3.82, 0.75),
    "CNN/DM, GPT-NEO": Alpha(5.32, 0.77),
    "OWT, GPT-2 XL": Alpha(4.06, 0.78),
    "OWT, GPT-NEO": Alpha(6.19, 0.82),
}
SPECDIFF_WITH = {
    "CNN/DM, GPT-2 XL": Alpha(None, 0.87),
    "CNN/DM, GPT-NEO": Alpha(None, 0.88),
    "OWT, GPT-2 XL": Alpha(None, 0.89),
    "OWT, GPT-NEO": Alpha(None, 0.88),
}

# Sec. 6.2 and App. A, on Fig. 2: the best number of steps.
SPECDIFF_MOST_STEPS = 5
