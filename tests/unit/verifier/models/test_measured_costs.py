"""Pass costs measured at start-up: the shortest times, awaited while they still fall."""

from __future__ import annotations

from collections.abc import Iterator

from verifier_service.models.measured_costs import _shortest


class Machine:
    """Two passes a turn, each turn a second; other work slows them as `slowed` has it."""

    def __init__(self, slowed: Iterator[float]) -> None:
        self._slowed = slowed
        self.turns = 0

    def turn(self) -> list[float]:
        self.turns += 1
        factor = next(self._slowed)
        return [1.0 * factor, 2.0 * factor]

    def clock(self) -> float:
        return float(self.turns)


def test_a_quiet_machine_is_measured_three_times() -> None:
    machine = Machine(iter([1.5, 1.0, 1.0]))
    assert _shortest(machine.turn, machine.clock) == [1.0, 2.0]
    assert machine.turns == 3


def test_times_that_still_fall_are_awaited() -> None:
    machine = Machine(iter([4.0, 3.0, 2.0, 1.0, 1.0]))
    assert _shortest(machine.turn, machine.clock) == [1.0, 2.0]
    assert machine.turns == 5


def test_not_for_ever() -> None:
    machine = Machine(2.0**-n for n in range(100))
    _shortest(machine.turn, machine.clock)
    assert machine.turns == 5
