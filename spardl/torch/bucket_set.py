"""All buckets of a model: how parameters are dealt out to them, what they owe, and their state in checkpoints."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from spardl.torch import checkpoint
from spardl.torch.buckets import Bucket, BucketBuilder
from spardl.torch.flat import FlatBucket
from spardl.torch.layout import DENSE, ROWS, SPARSE, BucketPlan, memory_strides, plan_buckets
from spardl.torch.sync import Dense, SparDL


class BucketSet:
    """``buckets`` is empty until they are laid out, when backward's order is known."""

    def __init__(self, builder: BucketBuilder, dense_names: set[str], bucket_bytes: float) -> None:
        self._builder, self._sync, self._parameters = builder, builder.sync, builder.parameters
        self._dense_names, self._bucket_bytes = dense_names, bucket_bytes
        self.buckets: list[Bucket] = []

    # -- laying out ----------------------------------------------------------------------------------------------------

    def plan(self, order: Sequence[str], with_rows: set[str]) -> list[BucketPlan]:
        """``order`` of parameters; those ``with_rows`` have sparse gradients."""
        return plan_buckets(order, self._parameters, self._kinds(with_rows), self._bucket_bytes)

    def build(self, plans: Sequence[BucketPlan], step: int) -> list[Bucket]:
        return [self._builder.build(plan, step) for plan in plans]

    def _kinds(self, with_rows: set[str]) -> dict[str, str]:
        dense = set(self._parameters) if isinstance(self._sync, Dense) else self._dense_names
        return {n: ROWS if n in with_rows else DENSE if n in dense else SPARSE for n in self._parameters}

    def retune(self, step: int) -> None:
        """To the density of this step."""
        if isinstance(self._sync, SparDL):
            density = self._sync.density_at(step)
            for bucket in self.buckets:
                if isinstance(bucket, FlatBucket) and bucket.kind == SPARSE:
                    bucket.reducer.retune(density=density)

    # -- what they owe -------------------------------------------------------------------------------------------------

    @property
    def residual_norm(self) -> float:
        squares = [float(np.linalg.norm(owed)) ** 2 for b in self.buckets if (owed := b.residual) is not None]
        return float(np.sqrt(sum(squares)))

    @property
    def residuals(self) -> dict[str, torch.Tensor]:
        """By parameter; copies."""
        owed = {}
        for bucket in self.buckets:
            if isinstance(bucket, FlatBucket) and (residual := bucket.residual) is not None:
                for slot in bucket.slots:
                    part = torch.from_numpy(residual[slot.start : slot.start + slot.parameter.numel()].copy())
                    owed[slot.name] = part.as_strided(slot.view.size(), slot.view.stride())
        return owed

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> list[dict[str, Any]]:
        return [checkpoint.sealed(self._describe(bucket) | bucket.state_dict()) for bucket in self.buckets]

    def plans_for(self, saved: Sequence[dict[str, Any]]) -> list[BucketPlan]:
        """The state's order of parameters; its buckets too, unless sync or exclude have changed."""
        plans = [BucketPlan.from_json(bucket) for bucket in saved]
        with_rows = {name for plan in plans if plan.kind == ROWS for name in plan.names}
        kinds = self._kinds(with_rows)
        if any(kinds[name] != plan.kind for plan in plans for name in plan.names):
            plans = self.plan([name for plan in plans for name in plan.names], with_rows)
        return plans

    def prepare_loads(
        self, buckets: Sequence[Bucket], saved: list[dict[str, Any]], same_ranks: bool
    ) -> list[Callable[[], None]]:
        """For every bucket what makes it go on from its state, or from one laid out as it is."""
        skeletons = [self._describe(bucket) for bucket in buckets]
        if any(old.get(key) != new[key] for old, new in zip(saved, skeletons, strict=False) for key in new):
            saved, same_ranks = checkpoint.lay_out_anew(saved, skeletons), False
        return [bucket.prepare_load(state, same_ranks=same_ranks) for bucket, state in zip(buckets, saved, strict=True)]

    def _describe(self, bucket: Bucket) -> dict[str, Any]:
        parameters = [self._parameters[name] for name in bucket.names]
        return {
            "kind": bucket.kind,
            "names": list(bucket.names),
            "shapes": [list(parameter.shape) for parameter in parameters],
            "strides": [list(memory_strides(parameter)) for parameter in parameters],
            "dtype": bucket.dtype,
        }
