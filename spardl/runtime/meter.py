"""What ranks compute inside collectives, on its way to virtual time."""

from typing import TypeVar

from spardl.effects import Collective, Work

Result = TypeVar("Result")


class Meter:
    """Seconds of computing that took no time yet. All ranks can share one, since only one of them runs at a time."""

    def __init__(self, per_call: float = 0.0) -> None:
        """``per_call``: seconds that a collective takes beside what is told of it."""
        self.per_call = per_call
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.seconds += seconds

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def spent(meter: Meter, collective: Collective[Result]) -> Collective[Result]:
    """The same collective, which asks for the time that it was told to have computed."""
    answer = None
    meter.seconds = meter.per_call  # what was told before is no collective's
    try:
        while True:
            try:
                effect = collective.send(answer)
            except StopIteration as stop:
                if meter.seconds:
                    yield Work(meter.take())
                return stop.value  # type: ignore[no-any-return]
            if meter.seconds:
                yield Work(meter.take())
            answer = yield effect
            meter.seconds = 0.0
    finally:
        collective.close()
