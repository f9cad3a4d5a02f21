"""What a measured ratio should be. Not run by itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio should be: at most so much, or at least; the floor must be reached, the aim is hoped for."""

    at_most: bool
    floor: float
    aim: float

    def __str__(self) -> str:
        aim = f", aim {self.aim:g}" if self.aim != self.floor else ""
        return f"{'≤' if self.at_most else '≥'} {self.floor:g}{aim}"

    def verdict(self, ratio: float) -> str:
        def reached(bound: float) -> bool:
            return ratio <= bound if self.at_most else ratio >= bound

        return "aim" if reached(self.aim) else "floor" if reached(self.floor) else "MISSED"


def at_most(floor: float, aim: float) -> Target:
    return Target(True, floor, aim)


def at_least(floor: float, aim: float | None = None) -> Target:
    return Target(False, floor, floor if aim is None else aim)
