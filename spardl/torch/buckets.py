"""From a plan to buckets that reduce."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

import torch

from spardl.allreduce import SparseAllreduce
from spardl.runtime.group import CommLike, Group
from spardl.torch.flat import FlatBucket
from spardl.torch.layout import DENSE, ROWS, SPARSE, BucketPlan
from spardl.torch.momentum import MomentumCorrection
from spardl.torch.rows import RowBucket
from spardl.torch.sync import Dense, SparDL, Sync

Bucket: TypeAlias = FlatBucket | RowBucket

_REDUCER_OPTIONS = ("teams", "sag", "residual", "wire", "wire_dtype", "backend")


@dataclass(frozen=True, slots=True)
class BucketBuilder:
    """All ranks build the same buckets in the same order."""

    parameters: Mapping[str, torch.nn.Parameter]
    sync: Sync
    comm: CommLike
    group: Group
    timeout: float

    def build(self, plan: BucketPlan, step: int) -> Bucket:
        dtype: torch.dtype = getattr(torch, plan.dtype)
        named = [(name, self.parameters[name]) for name in plan.names]
        if plan.kind == ROWS:
            return RowBucket(*named[0], self.group, dtype, self.timeout)
        size = sum(parameter.numel() for _, parameter in named)
        reducer = self.reducer(plan.kind, size, step)
        return FlatBucket(plan.kind, named, reducer, self.group.size, dtype, self._momentum(plan, size))

    def reducer(self, kind: str, size: int, step: int) -> SparseAllreduce:
        if kind == DENSE or isinstance(self.sync, Dense):
            return SparseAllreduce(self.comm, size, k=size, algorithm="dense_ring", timeout=self.timeout)
        options = {name: value for name, value in asdict(self.sync).items() if name in _REDUCER_OPTIONS}
        density = self.sync.density_at(step)
        return SparseAllreduce(self.comm, size, density=density, timeout=self.timeout, **options)

    def _momentum(self, plan: BucketPlan, size: int) -> MomentumCorrection | None:
        if not isinstance(self.sync, SparDL) or self.sync.momentum == 0:
            return None
        sync = self.sync
        masking = sync.momentum_masking and plan.kind == SPARSE  # nothing waits in a dense bucket
        return MomentumCorrection(size, plan.dtype, sync.momentum, sync.nesterov, masking)
