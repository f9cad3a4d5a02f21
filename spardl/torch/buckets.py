"""From a plan to buckets that reduce."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from spardl import kernels
from spardl.allreduce import SparseAllreduce
from spardl.cost.plan import AUTO
from spardl.runtime.group import CommLike, Group
from spardl.torch.flat import FlatBucket
from spardl.torch.layout import DENSE, ROWS, BucketPlan
from spardl.torch.momentum import MomentumCorrection
from spardl.torch.rows import RowBucket
from spardl.torch.sync import Dense, SparDL, Sync

Bucket: TypeAlias = FlatBucket | RowBucket

_REDUCER_OPTIONS = ("algorithm", "teams", "sag", "residual", "wire", "wire_dtype", "backend", "profile")


@dataclass(frozen=True, slots=True)
class BucketBuilder:
    """All ranks build the same buckets in the same order."""

    parameters: Mapping[str, torch.nn.Parameter]
    sync: Sync
    comm: CommLike
    group: Group
    timeout: float
    warn_after: float | None = None

    def build(self, plan: BucketPlan, step: int) -> Bucket:
        dtype: torch.dtype = getattr(torch, plan.dtype)
        named = [(name, self.parameters[name]) for name in plan.names]
        if plan.kind == ROWS:
            return RowBucket(*named[0], self.group, dtype, self.timeout, self.warn_after)
        size = sum(parameter.numel() for _, parameter in named)
        reducer = self.reducer(plan.kind, size, step)
        momentum = self._momentum(plan, size, reducer.is_dense)
        device = self._gpu([parameter for _, parameter in named], reducer) if momentum is None else None
        return FlatBucket(plan.kind, named, reducer, self.group.size, dtype, momentum, device)

    def _gpu(self, parameters: Sequence[torch.nn.Parameter], reducer: SparseAllreduce) -> torch.device | None:
        """The GPU to reduce on; None for the host, where gradients are then copied to."""
        if not isinstance(self.sync, SparDL) or reducer.algorithm != "spardl":
            return None
        backend, device = kernels.resolve(self.sync.backend), parameters[0].device
        if backend == kernels.CUDA:  # distribute() has made sure that there is one device
            return device
        if backend != AUTO or device.type != "cuda" or any(parameter.device != device for parameter in parameters):
            return None
        try:
            kernels.open_cuda(device.index)
        except ValueError as error:
            warnings.warn(f"gradients go through the host: {error}", RuntimeWarning, stacklevel=2)
            return None
        return device

    def reducer(self, kind: str, size: int, step: int) -> SparseAllreduce:
        limits: dict[str, Any] = {"timeout": self.timeout, "warn_after": self.warn_after}
        if kind == DENSE or isinstance(self.sync, Dense):
            return SparseAllreduce(self.comm, size, k=size, algorithm="dense_ring", **limits)
        options = {name: getattr(self.sync, name) for name in _REDUCER_OPTIONS}
        density = self.sync.lasting_density(step)
        reducer = SparseAllreduce(self.comm, size, density=density, **limits, **options)
        reducer.retune(density=self.sync.density_at(step))
        return reducer

    def _momentum(self, plan: BucketPlan, size: int, dense: bool) -> MomentumCorrection | None:
        if not isinstance(self.sync, SparDL) or self.sync.momentum == 0:
            return None
        sync = self.sync
        masking = sync.momentum_masking and not dense  # where nothing waits, no old momentum arrives
        return MomentumCorrection(size, plan.dtype, sync.momentum, sync.nesterov, masking)
