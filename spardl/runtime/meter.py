"""What ranks compute inside collectives, on its way to virtual time."""

from typing import TypeVar

from spardl.effects import Allreduce, Collective, Exchange, Recv, Work

Result = TypeVar("Result")
_WAITING = (Exchange, Recv, Allreduce)


class Meter:
    """Seconds of computing that took no time yet. All ranks can share one, since only one of them runs at a time."""

    def __init__(self, per_call: float = 0.0, per_round: float = 0.0) -> None:
        """Seconds that a collective, and a message that it waits for, take beside what is told of them."""
        self.per_call, self.per_round = per_call, per_round
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
            meter.seconds = meter.per_round if isinstance(effect, _WAITING) else 0.0
    finally:
        collective.close()
