"""Dense all-reduce along a schedule: the dense algorithms differ only in who talks to whom.

Each block is summed in one fixed order, by one rank or in equal pairs, so all ranks get the same bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from spardl import schedule
from spardl.effects import Bytes, Collective, Exchange, Recv, Send
from spardl.errors import DtypeDisagreement, WireError
from spardl.header import DTYPES

Array = npt.NDArray[Any]


class DenseWalk:
    """One rank's ``grad``, which is left alone, on its way to ``out``, the sum over all ranks."""

    def __init__(self, phases: schedule.Phases, rank: int, grad: Array, out: Array, name: str) -> None:
        self._phases, self._rank, self._grad, self._out, self._name = phases, rank, grad, out, name
        self._bounds, _ = schedule.cut_blocks(len(grad), 0, phases.blocks)
        self._summed: set[int] = set()  # blocks whose sum so far is in out; of the others it is grad

    def run(self) -> Collective[None]:
        if not self._phases.reduce:  # alone
            np.copyto(self._out, self._grad)
        for number, step in enumerate(self._phases.reduce):
            arrived = yield from self._talk(step, f"{self._name} reduce round {number}")
            if not isinstance(step, schedule.Give):
                so_far = self._held(step.receives)
                np.add(self._read(arrived, step), so_far, out=self._part(self._out, step.receives))
                self._summed.update(step.receives)
        for number, step in enumerate(self._phases.gather):
            arrived = yield from self._talk(step, f"{self._name} gather round {number}")
            if not isinstance(step, schedule.Give):
                self._part(self._out, step.receives)[:] = self._read(arrived, step)
                self._summed.update(step.receives)

    def _talk(self, step: schedule.Step, name: str) -> Collective[Bytes]:
        if isinstance(step, schedule.Take):
            arrived = yield Recv(step.source, name)
        elif isinstance(step, schedule.Give):
            arrived = yield Send(step.to, self._held(step.sends), name)
        else:
            arrived = yield Exchange(step.to, self._held(step.sends), step.source, name)
        return arrived  # type: ignore[no-any-return]

    def _held(self, blocks: tuple[int, ...]) -> Array:
        return self._part(self._out if blocks[0] in self._summed else self._grad, blocks)

    def _part(self, array: Array, blocks: tuple[int, ...]) -> Array:
        return array[self._bounds[blocks[0]] : self._bounds[blocks[-1] + 1]]

    def _read(self, arrived: Bytes, step: schedule.Round | schedule.Take) -> Array:
        expected = self._part(self._grad, step.receives)
        if len(arrived) != expected.nbytes:
            for other in DTYPES:
                if len(arrived) == len(expected) * other.itemsize:
                    raise DtypeDisagreement({self._rank: str(self._grad.dtype), step.source: str(other)})
            raise WireError(f"{len(arrived)} bytes arrived from rank {step.source}, expected {expected.nbytes}")
        return arrived.view(self._grad.dtype)
