"""Collectives and kernels that leave a trace, and are otherwise the same."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from spardl.effects import Allreduce, Collective, Effect, Exchange, Recv, Send, Work, size_of
from spardl.kernels.api import Corrector, FrameCoder, Kernels
from spardl.timeline.recorder import Recorder, Records

Result = TypeVar("Result")


def traced(recorder: Records, track: int, name: str, generator: Collective[Result]) -> Collective[Result]:
    """The same collective. On its track the call contains rounds, and those what is sent, waited for and computed.

    A wait lasts from the question to the moment in which the collective goes on: where a rank has other work to do
    meanwhile, the answer may have come before.
    """
    began = asked = resumed = recorder.now()
    round = _Round(recorder, track)
    effect: Effect | None = None  # while it waits
    arrived: Any = None
    try:
        while True:
            with recorder.working_on(track):
                effect = generator.send(arrived)
            if isinstance(effect, Work):  # a part of what is computed between two waits
                arrived = yield effect
                effect = None
                continue
            asked = recorder.now()
            recorder.add(track, "compute", "compute", resumed, asked)
            round.enter(effect.step, asked)
            arrived = yield effect
            resumed = recorder.now()
            round.note(effect, arrived, asked, resumed)
            effect = None
    except StopIteration as stop:
        recorder.add(track, "compute", "compute", resumed, recorder.now())
        return cast(Result, stop.value)
    finally:
        generator.close()
        if effect is not None:
            round.note(effect, None, asked, recorder.now())
        round.leave()
        recorder.add(track, name, "call", began, recorder.now())


class _Round:
    """Effects of the same step, one after the other."""

    def __init__(self, recorder: Records, track: int) -> None:
        self._recorder, self._track = recorder, track
        self._step = ""
        self._began = self._ended = 0

    def enter(self, step: str, now: int) -> None:
        if step != self._step:
            self.leave()
            self._step, self._began = step, now

    def leave(self) -> None:
        if self._step:
            self._recorder.add(self._track, self._step, "round", self._began, self._ended)
        self._step = ""

    def note(self, effect: Effect, arrived: Any, asked: int, resumed: int) -> None:
        self._ended = resumed
        details: dict[str, Any] = {}
        if isinstance(effect, Exchange | Send):
            details |= {"to": effect.to, "bytes_sent": size_of(effect.payload)}
        if isinstance(effect, Exchange | Recv):
            details |= {"from": effect.source, "bytes_received": 0 if arrived is None else len(arrived)}
        category = "send" if isinstance(effect, Send) else "wait"
        self._recorder.add(self._track, _name(effect), category, asked, resumed, **details)


def _name(effect: Effect) -> str:
    if isinstance(effect, Send):
        return f"send to rank {effect.to}"
    if isinstance(effect, Exchange | Recv):
        return f"wait for rank {effect.source}"
    return "wait for all ranks" if isinstance(effect, Allreduce) else "wait for delivery"


class _TracedKernels:
    """Looks like a backend; every kernel is an event of the collective that calls it."""

    def __init__(self, recorder: Recorder, kernels: Kernels) -> None:
        self.name, self.arrays = kernels.name, kernels.arrays
        self.frames = None if kernels.frames is None else _traced_all(recorder, kernels.frames, FrameCoder)
        self.corrector = None if kernels.corrector is None else _traced_all(recorder, kernels.corrector, Corrector)
        vars(self).update(vars(_traced_all(recorder, kernels, Kernels)))


def _traced_all(recorder: Recorder, kernels: Any, protocol: type) -> Any:
    """The functions of a protocol, each of which leaves an event of its name."""
    names = [name for name, member in vars(protocol).items() if callable(member) and name[0] != "_"]
    # Of how many blocks is of no interest there, nor what is done on the way.
    told = {name: name.removesuffix("_many").removesuffix("_corrected") for name in names}
    traced = {name: _traced_kernel(recorder, told[name], getattr(kernels, name)) for name in names}
    return SimpleNamespace(**traced)


def _traced_kernel(recorder: Recorder, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        began = recorder.now()
        result = kernel(*arguments, **named)
        recorder.add(recorder.active_track(), name, "kernel", began, recorder.now())
        return result

    return call


def traced_kernels(recorder: Recorder | None, kernels: Kernels) -> Kernels:
    """The same kernels, and those that are given if there is no timeline."""
    return kernels if recorder is None else cast(Kernels, _TracedKernels(recorder, kernels))
