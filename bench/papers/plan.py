"""How much each experiment decodes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Size:
    """Prompts decoded by every way of a table, and tokens decoded after each."""

    prompts: int
    tokens: int


@dataclass(frozen=True, slots=True)
class AblationSize:
    """Texts that drafters are trained on, held-out ones, tokens of each, and steps."""

    texts: int
    held_out: int
    tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One size for each kind of table.

    per_family is the prompts of a family; where a table goes by family, all are decoded.
    lengths_per_family are those of the table whose claims compare families by a few percent. The
    peers of `transformers` are several times slower than anything else, so they get fewer. lengths,
    steps and the knobs are what the sweeps go through; batches are sessions at once; seeds are a
    prompt's above temperature 0; pair ends the report's name where it is not the embedded pair's.
    """

    name: str
    per_family: int
    lengths_per_family: int
    tokens: int
    peers: Size
    sweep: Size
    refined: Size
    opening: Size
    batch_tokens: int
    batch_repeats: int
    lengths: tuple[int, ...]
    steps: tuple[int, ...]
    beams: tuple[int, ...]
    caps: tuple[int, ...]
    masses: tuple[float, ...]
    gammas: tuple[int, ...]
    diffusion_steps: tuple[int, ...]
    coupling_draws: int
    ablation: AblationSize
    seeds: int = 1
    pair: str = ""
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)

    @property
    def report(self) -> str:
        """What its report's files are called: none replaces that of another plan."""
        quick = "" if self.name == "full" else f"_{self.name}"
        return f"papers{quick}{self.pair}"

    def draft_lengths(self, block: int) -> tuple[int, ...]:
        """Return the lengths that a block of so many tokens allows, and the whole block's."""
        return (*(k for k in self.lengths if k < block), block)


# Meant for under 10 and under 60 minutes on 2 cores where plain decoding makes 400 tokens a second.
QUICK = Plan(
    name="quick",
    per_family=2,
    lengths_per_family=2,
    tokens=40,
    peers=Size(4, 40),
    sweep=Size(6, 40),
    refined=Size(6, 32),
    opening=Size(6, 80),
    batch_tokens=24,
    batch_repeats=2,
    lengths=(2, 4, 8, 15),
    steps=(1, 2, 4),
    beams=(1, 3, 6),
    caps=(2, 8, 15),
    masses=(0.5, 0.8, 0.95),
    gammas=(4, 8, 15),
    diffusion_steps=(1, 4, 8),
    coupling_draws=50,
    ablation=AblationSize(32, 12, 96, 12),
)
FULL = Plan(
    name="full",
    per_family=16,
    lengths_per_family=16,
    tokens=80,
    peers=Size(10, 96),
    sweep=Size(30, 80),
    refined=Size(30, 64),
    opening=Size(30, 128),
    batch_tokens=64,
    batch_repeats=10,
    lengths=(2, 4, 6, 8, 11, 15),
    steps=(1, 2, 4),
    beams=(1, 3, 8),
    caps=(1, 4, 15, 30),
    masses=(0.3, 0.8, 0.99),
    gammas=(4, 8, 15),
    diffusion_steps=(1, 2, 4, 8),
    coupling_draws=400,
    ablation=AblationSize(512, 64, 192, 300),
    seeds=3,
)
# Meant for half an hour where plain decoding makes 120: another pair than the embedded one.
LARGER = replace(
    FULL,
    lengths_per_family=10,
    tokens=64,
    peers=Size(6, 64),
    sweep=Size(12, 64),
    refined=Size(12, 48),
    opening=Size(16, 96),
)


def plan_for(pair: str, quick: bool) -> Plan:
    """Return the plan for a pair, "" for the embedded one."""
    plan = QUICK if quick else LARGER if pair else FULL
    return replace(plan, pair=f"_{pair}" if pair else "")
