"""One cycle: from the first gradient of a backward pass to the means over ranks, as a transaction over all buckets.

Every bucket is filled, started once it is full or at the end, waited for, and written back. If one fails, those that
succeeded are taken back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spardl.runtime.mpi import Task, advance_all
from spardl.torch.buckets import Bucket
from spardl.torch.watch import GradientWatch


class Cycle:
    """The buckets, and how far their reductions are. ``scale``: asks for the GradScaler's factor."""

    def __init__(self, watch: GradientWatch, scale: Callable[[], float], local_clip: float | None) -> None:
        self._watch, self._scale, self._local_clip = watch, scale, local_clip
        self.buckets: list[Bucket] = []
        self._places: dict[str, tuple[Bucket, int]] = {}
        self.began = 0.0
        self._unscale: float | None = None  # the factor from scaled to true gradients, once there is one
        self._clipped = 1.0  # the factor of local clipping

    def use(self, buckets: Sequence[Bucket]) -> None:
        self.buckets = list(buckets)
        self._places = {name: (bucket, number) for bucket in buckets for number, name in enumerate(bucket.names)}

    @property
    def tasks(self) -> list[Task[Any]]:
        """What is under way."""
        return [bucket.task for bucket in self.buckets if bucket.task is not None]

    # -- gradients in --------------------------------------------------------------------------------------------------

    def send(self, name: str) -> None:
        """Puts a gradient into its bucket, which is started if it is full now."""
        bucket, _ = self._places[name]
        self._take(name)
        if all(map(self._watch.was_sent, bucket.names)):
            bucket.start()
        advance_all(self.tasks)  # whoever waits for what fails raises its error

    def send_rest(self) -> None:
        """Fills and starts the buckets that are not under way."""
        for name in self._places:
            if not self._watch.was_sent(name):
                self._take(name)
        if self._local_clip is not None:
            norm = float(np.sqrt(sum(bucket.squared_norm() for bucket in self.buckets)))
            if norm > self._local_clip:
                self._clipped = self._local_clip / norm
                for bucket in self.buckets:
                    bucket.scale(self._clipped)
        for bucket in self.buckets:
            if bucket.task is None:
                bucket.start()

    def _take(self, name: str) -> None:
        if self._unscale is None:
            self._unscale = 1 / self._scale()
            self.began = time.perf_counter()
        bucket, position = self._places[name]
        bucket.take(position, self._watch.new(name), self._unscale)
        self._watch.note_sent(name)

    # -- its end -------------------------------------------------------------------------------------------------------

    def write_back(self, weight_decay: Mapping[str, float]) -> None:
        """All have succeeded: makes the means the parameters' gradients."""
        scale = 1 / self._unscale if self._unscale else 1.0
        for bucket in self.buckets:
            bucket.finish(scale, weight_decay)
        self._watch.note_written()

    def failed_with(self, error: Exception) -> Bucket | None:
        """The bucket whose error that is; none if it is of something else."""
        return next((b for b in self.buckets if b.task is not None and b.task.error is error), None)

    def give_up(self, error: Exception) -> None:
        """This rank cannot go on: neither can the others, and what was reduced is taken back."""
        for bucket in self.buckets:
            if bucket.task is None or not bucket.task.done:
                bucket.fail(error)
            elif bucket.task.error is None:
                bucket.undo()
        factor = (self._unscale or 1.0) * self._clipped
        for name, (bucket, position) in self._places.items():
            if self._watch.was_sent(name):
                bucket.give_back(position, factor)
        self.end()

    def end(self) -> None:
        self._watch.end_cycle()
        self._unscale = None
        self._clipped = 1.0
        for bucket in self.buckets:
            bucket.task = None
