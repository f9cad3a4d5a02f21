"""What a user's optimizer and script see of a system that does not wait for everyone: written once for all of them."""

import contextlib
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spardl import saved
from spardl.agreement import check_together, open_channel
from spardl.effects import Process
from spardl.errors import ReplicasDiffer
from spardl.protocols.metrics import Metrics
from spardl.runtime import farewell
from spardl.runtime.group import Group
from spardl.runtime.thread import Channels, ProcessThread
from spardl.torch import checkpoint
from spardl.torch.amp import NoScaler
from spardl.torch.arrivals import Arrivals, hook_on_gradients
from spardl.torch.checks import Unchanged
from spardl.torch.graphs import outside_graphs
from spardl.torch.live import live_handles
from spardl.torch.replicas import ReplicaWatch
from spardl.torch.start import broadcast_tensors
from spardl.torch.stats import Stats
from spardl.torch.systems.system import Setup, System
from spardl.torch.vector import ModelVector


class SystemHandle:
    """What ``distribute`` returns for such a system. Call ``finish`` when training is over, or use it as a context."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        parameters: Mapping[str, torch.nn.Parameter],
        *,
        make: Callable[[Setup], System],
        group: Group,
        timeout: float,
        verify_every: int,
    ) -> None:
        self._optimizer, self._model, self._parameters = optimizer, model, dict(parameters)
        self._group, self._timeout = group, timeout
        self._vector, self._own_step = ModelVector(parameters), optimizer.step
        self._system = make(Setup(optimizer, model, self._own_step, parameters, self._vector, group, timeout))
        self._unchanged, self._amp = Unchanged(optimizer, self._parameters), NoScaler([optimizer])
        self._replicas = ReplicaWatch(parameters, group, verify_every, {}, timeout)
        self._arrivals = Arrivals(self._parameters, once=False)
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._patch(optimizer)
        self._hooks = hook_on_gradients(self._parameters.values(), self._on_gradient)
        self._finished = False
        live_handles.add(self)
        farewell.remember(self)
        self._open()

    def _patch(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes the place of its ``step``: a hook can neither leave a step out nor repeat it."""
        own = outside_graphs(self._step)
        # A method, since schedulers take it apart and bind it again.
        step = types.MethodType(lambda _optimizer, closure=None: own(closure), optimizer)
        optimizer.step = step  # type: ignore[method-assign]

    # -- for users -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Waits for all ranks to finish and applies the last updates. All ranks have the same model now.

        Weights are the same by then, which is verified, and buffers become rank 0's. After it, also if it raises what
        has gone wrong, the optimizer works as before ``distribute``.
        """
        if self._finished:
            return
        try:
            self._come_to_rest()
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._end()

    remove = finish

    def settle(self) -> None:
        """Like ``finish``, but training goes on after it: the moment to evaluate or to save. All ranks call it."""
        if self._finished:
            return
        try:
            self._come_to_rest()
        except ReplicasDiffer:
            self._end()  # replicas that differ cannot train together
            raise
        self._open()

    def verify(self) -> None:
        """Raises ``ReplicasDiffer`` unless all parameters of the model, frozen ones too, are equal on all ranks.

        To the bit. Settles first, since they differ while training is under way. All ranks call it. Unless
        ``distribute(..., verify_every=0)`` was asked for, ``settle`` and ``finish`` compare what is trained.
        """
        self.settle()
        self._replicas.compare(dict(self._model.named_parameters()))

    def synchronize(self) -> None:
        """Nothing to wait for: until ``step()``, gradients are this rank's own, and may be clipped or looked at."""

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes add to this rank's gradients, inside as outside; ``step()`` takes what is there."""
        yield

    def broadcast_buffers(self) -> None:
        """Makes the model's buffers (e.g. running means of batch norm) rank 0's. ``finish`` and ``settle`` do it.

        All ranks call it, after as many steps each.
        """
        broadcast_tensors(self._group, self._model.buffers(), self._timeout)

    def __enter__(self) -> "SystemHandle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.finish()
        elif not self._finished:  # the others must not wait for a rank that has left
            self._give_up(error)
            self._end()

    def leave(self, error: BaseException | None) -> None:
        """The program ends without ``finish``. Those who are still training need not wait for this rank."""
        if error is not None:
            self._give_up(error)
        elif not self._finished and self._thread.door.error is None:
            if self._group.me == 0:
                warnings.warn(
                    f"{self._system.name}: the program ended without handle.finish(); weights saved before it differ "
                    "between ranks",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.finish()

    @property
    def iteration(self) -> int:
        """How many updates the weights have seen, over all of training: for loops and learning rates to follow."""
        return self._system.updates

    @property
    def metrics(self) -> Metrics:
        """Contributors by round, how old gradients were, how many were dropped, how long training waited."""
        return self._system.metrics

    @property
    def residual(self) -> npt.NDArray[Any]:
        """What this rank still owes, after ``finish`` or ``settle``; all of it zero where everything is sent."""
        owed = self._system.residual
        return np.zeros(self._vector.size, self._vector.dtype) if owed is None else owed

    @property
    def stats(self) -> Stats:
        """This rank's totals since ``distribute``. Updates that nobody contributed to count as skipped."""
        ranks, size = self._group.size, self._vector.size
        system, totals = self._system, self._system.totals
        dense = 2 * (ranks - 1) * size * self._vector.dtype.itemsize // ranks
        norm, traffic = self._thread.door.look(lambda: (self._residual_norm(), self._thread.traffic))
        counted = Stats().plus(
            [system.traffic, *([] if self._finished else [traffic])],
            dense_bytes=dense * totals.applied,
            communicate_seconds=system.communicated,
            wait_seconds=system.metrics.waited_seconds,
        )
        return replace(
            counted,
            steps=totals.applied,
            skipped=totals.skipped,
            density=totals.entries / max(1, size * totals.applied),
            residual_norm=norm,
        )

    def _residual_norm(self) -> float:
        owed = self._system.residual
        return 0.0 if owed is None else float(np.linalg.norm(owed))

    def is_for(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer is self._optimizer

    def has(self, parameter: torch.nn.Parameter) -> bool:
        return self._vector.has(parameter)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's residual, for ``torch.save``, right after ``settle()`` or ``finish()``: one file per rank."""
        self._require_settled("state_dict()")
        bucket = self._vector.describe(self._kind)
        if (owed := self._system.residual) is not None:
            bucket["residual"] = torch.from_numpy(owed.copy())
        bucket = checkpoint.sealed(bucket)
        ranks, rank, steps = self._group.size, self._group.me, self._system.updates
        return {"format": checkpoint.FORMAT, "ranks": ranks, "rank": rank, "steps": steps, "buckets": [bucket]}

    def gathered_state_dict(self) -> dict[str, Any] | None:
        """All ranks' states as one, on rank 0 (None on the others). It can be loaded on any number of ranks."""
        states = checkpoint.gather(self._group, self.state_dict(), self._timeout)
        return None if states is None else checkpoint.join_states(states)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a ``state_dict()`` of this rank, or a gathered one, also of another number of ranks.

        If the state of one rank is damaged or does not fit, all ranks raise ValueError, and nothing has changed.
        """
        self._require_settled("load_state_dict()")

        def check() -> tuple[int, npt.NDArray[Any] | None]:
            mine = checkpoint.state_for(state, self._group.size, self._group.me)
            checkpoint.require_fitting(mine, self._parameters)
            (bucket,) = checkpoint.lay_out_anew(mine["buckets"], [self._vector.describe(self._kind)])
            residual = bucket.get("residual")
            return mine["steps"], None if residual is None else saved.finite(residual.numpy(), "the residual")

        updates, residual = check_together(self._group, check, self._timeout, "load_state_dict")
        if residual is not None:
            self._system.owe(residual)
        self._system.updates = updates

    @property
    def _kind(self) -> str:
        return self._system.name.lower()

    def _require_settled(self, call: str) -> None:
        if (error := self._thread.door.error) is not None:
            raise error
        if not (self._finished or self._fresh):
            raise RuntimeError(f"{call}: rounds are under way; call settle() first, on all ranks")

    # -- the processes -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        program = self._system.open()
        name = self._system.name
        channels = Channels(*(open_channel(self._group, dict, self._timeout, name) for _ in range(3)))
        self._thread = ProcessThread(program, channels, self._timeout, name)
        self._thread.start()
        self._fresh = True

    def _drive(self, process: Process[None]) -> None:
        self._thread.door.drive(process)

    def _come_together(self, stays: bool) -> bool:
        """Ends all processes and makes all ranks the same. True if everyone stays."""
        self._drive(self._system.close())
        self._thread.join()
        self._system.traffic.add(self._thread.traffic)
        return self._system.meet(stays)

    def _come_to_rest(self) -> None:
        while not self._come_together(stays=True):
            self._open()
        self.broadcast_buffers()
        if self._replicas.every > 0:
            self._replicas.compare(self._parameters)

    def _give_up(self, error: BaseException) -> None:
        """This rank ends here, and tells the others why; waits only for that."""
        self._thread.door.fail(error)
        self._thread.join()

    def _end(self) -> None:
        self._amp.remove()
        for hook in self._hooks:
            hook.remove()
        self._finished = True
        live_handles.discard(self)
        farewell.forget(self)

    # -- a step --------------------------------------------------------------------------------------------------------

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        if self._finished:
            return self._own_step(closure)
        if closure is not None:
            raise TypeError("step(closure) cannot be distributed: compute gradients with backward() and call step()")
        try:
            self._distributed_step()
        except Exception as error:
            self._thread.door.fail(error)  # the others must not wait for a rank that cannot go on
            raise
        return None

    def _on_gradient(self, parameter: torch.nn.Parameter) -> None:
        if (problem := self._arrivals.note(self._names[id(parameter)])) is not None:
            self._thread.door.fail(problem)
            raise problem

    def _distributed_step(self) -> None:
        self._arrivals.forget()
        if (problem := self._problem()) is not None:
            raise problem
        self._fresh = False
        self._drive(self._system.step())
        if self._system.wants_meeting:
            self._come_together(stays=False)
            self._open()

    def _problem(self) -> Exception | None:
        """What the user has to mend first, if anything."""
        if self._amp.problem() is not None:
            return RuntimeError(
                f"this optimizer is stepped by a GradScaler, which {self._system.name} does not know: train in "
                "bfloat16 or float32 without one, or use SparDL or Dense with distribute(..., scaler=scaler)"
            )
        return self._unchanged.problem()
