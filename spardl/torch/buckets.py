"""From a plan to buckets that reduce."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

import torch

from spardl.allreduce import SparseAllreduce
from spardl.dense import DenseAllreduce
from spardl.runtime.group import CommLike, Group
from spardl.torch.flat import FlatBucket, Reducer
from spardl.torch.layout import DENSE, ROWS, BucketPlan
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
        return FlatBucket(named, self.reducer(plan, size, step), self.group.size, dtype, self._momentum(plan, size))

    def reducer(self, plan: BucketPlan, size: int, step: int) -> Reducer:
        if plan.kind == DENSE or isinstance(self.sync, Dense):
            return DenseAllreduce(self.comm, size, dtype=plan.dtype, timeout=self.timeout)
        options = {name: value for name, value in asdict(self.sync).items() if name in _REDUCER_OPTIONS}
        density = self.sync.density_at(step)
        return SparseAllreduce(self.comm, size, density=density, timeout=self.timeout, **options)

    def _momentum(self, plan: BucketPlan, size: int) -> MomentumCorrection | None:
        if not isinstance(self.sync, SparDL) or self.sync.momentum == 0:
            return None
        sync = self.sync
        return MomentumCorrection(size, plan.dtype, sync.momentum, sync.nesterov, sync.momentum_masking)
