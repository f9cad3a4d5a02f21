"""RNA for a torch optimizer: ``step()`` deposits a gradient and applies whatever rounds have finished."""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from spardl import kernels
from spardl.runtime.group import Group
from spardl.selection import require_finite_gradient
from spardl.sync.box import GradientBox, Metrics, SummingBox, WeightingBox
from spardl.sync.engine import Engine
from spardl.sync.parts import DensePart, SparsePart, Sum
from spardl.sync.policies import All
from spardl.torch.flat import hand_over, write_mean
from spardl.torch.handle import live_handles
from spardl.torch.layout import memory_strides
from spardl.torch.stats import Stats
from spardl.torch.sync import RNA, SparDL
from spardl.wire import Codec


class RnaHandle:
    """What ``distribute`` returns for RNA. Call ``finish`` when training is over, or use it as a context."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        *,
        sync: RNA,
        group: Group,
        timeout: float,
    ) -> None:
        self._optimizer, self._parameters, self._sync, self._group = optimizer, dict(parameters), sync, group
        self._ids = {id(parameter) for parameter in self._parameters.values()}
        wide = any(parameter.dtype == torch.float64 for parameter in self._parameters.values())
        self._dtype = np.dtype(np.float64 if wide else np.float32)
        self._size = sum(parameter.numel() for parameter in self._parameters.values())
        self._result = np.zeros(self._size, self._dtype)
        self._version = 0
        self._entries = 0  # of all results
        self._terms = ""  # this rank's numbers in its last step
        self._box, self._part = self._make(timeout)
        self._engine = Engine(
            group,
            self._box,
            self._part,
            sync.policy,
            patience=sync.patience,
            timeout=timeout,
            terms=lambda: self._terms,
        )
        self._finished = False
        self._own_step = optimizer.step
        # A hook can neither skip a step nor repeat it. Schedulers take a method of the optimizer apart and rebind it.
        step = types.MethodType(lambda _optimizer, closure=None: self._step(closure), optimizer)
        optimizer.step = step  # type: ignore[method-assign]
        self._note_terms()
        live_handles.add(self)
        self._engine.start()

    def _make(self, timeout: float) -> tuple[GradientBox, DensePart | SparsePart]:
        reduce = self._sync.reduce
        if not isinstance(reduce, SparDL):
            return WeightingBox(self._sync.staleness, timeout), DensePart(self._group.me, self._size, self._dtype)
        chosen = kernels.load(reduce.backend)
        codec = Codec(chosen, reduce.wire, reduce.wire_dtype)
        k = max(1, round(reduce.density_at(0) * self._size))
        part = SparsePart(self._group.me, self._size, k, self._dtype, chosen, codec)
        return SummingBox(self._sync.staleness, timeout), part

    # -- for users -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Waits for all ranks to finish and applies the last rounds: all weights are equal now.

        After it the optimizer works as before ``distribute``.
        """
        if not self._finished:
            self._box.close()
            self._engine.join()
            self._apply()
            self._finished = True
            live_handles.discard(self)

    remove = finish

    def __enter__(self) -> "RnaHandle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.finish()
        else:  # the others must not wait for a rank that has left
            self._box.fail(error)

    @property
    def metrics(self) -> Metrics:
        """Contributors by round, how old gradients were, how many were dropped, how long training waited."""
        return self._box.metrics

    @property
    def residual(self) -> Any:
        """What this rank still owes, after ``finish``; all of it zero where everything is sent."""
        if isinstance(self._part, SparsePart):
            return self._part.reducer.residual
        return np.zeros(self._size, self._dtype)

    @property
    def stats(self) -> Stats:
        """This rank's totals so far."""
        dense = 2 * (self._group.size - 1) * self._size * self._dtype.itemsize // self._group.size
        totals = Stats().plus(
            [self._engine.traffic],
            dense_bytes=dense * self._version,
            communicate_seconds=0.0,
            wait_seconds=self.metrics.waited_seconds,
        )
        density = self._entries / max(1, self._size * self._version)
        return replace(totals, steps=self._version, density=density)

    def is_for(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer is self._optimizer

    def has(self, parameter: torch.nn.Parameter) -> bool:
        return id(parameter) in self._ids

    # -- a step --------------------------------------------------------------------------------------------------------

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        if self._finished:
            return self._own_step(closure)
        if closure is not None:
            raise TypeError("step(closure) cannot be distributed: compute gradients with backward() and call step()")
        self._note_terms()
        try:
            grad = self._gather()
        except Exception as error:
            self._box.fail(error)
            raise
        self._box.deposit(grad, self._version)
        if isinstance(self._sync.policy, All):
            self._box.wait()
        self._apply()
        return None

    def _gather(self) -> Any:
        """This rank's gradients as one new vector."""
        vector = np.empty(self._size, self._dtype)
        for parameter, view in self._views(vector):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        require_finite_gradient(vector, self._group.me)
        return vector

    def _apply(self) -> None:
        """One step of the optimizer for every round that has finished."""
        for result, terms in self._box.collect():
            self._write(result)
            before = self._set_terms(json.loads(terms))
            self._own_step()
            self._set_terms(before)
            self._version += 1
            self._entries += result.vector.nnz

    def _write(self, result: Sum) -> None:
        ranks = self._group.size if self._sync.linear_scaling else max(1, result.contributors)
        write_mean(result.vector, self._result, ranks, 1.0)
        for parameter, view in self._views(self._result):
            hand_over(parameter, view)

    def _views(self, vector: Any) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        flat, start, views = torch.from_numpy(vector), 0, []
        for parameter in self._parameters.values():
            views.append((parameter, flat.as_strided(parameter.size(), memory_strides(parameter), start)))
            start += parameter.numel()
        return views

    # -- the same learning rate everywhere -----------------------------------------------------------------------------

    def _note_terms(self) -> None:
        """Rank 0's learning rate, say, is every rank's for a round, however far their own schedules are."""
        self._terms = json.dumps([_numbers(group) for group in self._optimizer.param_groups])

    def _set_terms(self, terms: list[dict[str, Any]]) -> list[dict[str, Any]]:
        before = [_numbers(group) for group in self._optimizer.param_groups]
        for group, numbers in zip(self._optimizer.param_groups, terms, strict=True):
            group.update({name: tuple(n) if isinstance(n, list) else n for name, n in numbers.items()})
        return before


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    """What a scheduler may change: numbers, and tuples of them such as Adam's betas."""
    return {
        name: value
        for name, value in group.items()
        if name != "params" and isinstance(value, int | float | tuple) and not isinstance(value, bool)
    }
