"""RNA's processes on this real rank, with a training that tests drive."""

from spardl import kernels
from spardl.agreement import open_channel
from spardl.protocols.rna.parts import DensePart, SparsePart
from spardl.protocols.rna.program import rna
from spardl.protocols.rna.training import Training
from spardl.protocols.rna.waiting import Summed, Weighted
from spardl.runtime.group import resolve
from spardl.runtime.thread import Channels, ProcessThread
from spardl.wire import Codec

STALENESS, LIMIT = 3, 60


def make_part(kind, size, k):
    """``kind``: dense, sparse, or the type of values that a sparse one sends."""
    if kind == "dense":
        return DensePart(size, "float64"), Weighted(STALENESS)
    chosen = kernels.load()
    codec = Codec(chosen, values="same" if kind == "sparse" else kind)
    return SparsePart(size, k, "float64", chosen, codec), Summed()


class RealRna:
    """One group of all ranks of ``comm``."""

    def __init__(self, comm, part, waiting, policy, patience=0.5):
        group = resolve(comm, LIMIT)
        groups = [tuple(range(group.size))]
        self.training = Training(group.me, groups, STALENESS, limit=LIMIT, grace=5.0)
        program = rna(group.me, groups, part, waiting, policy, patience=patience, limit=LIMIT)
        channels = Channels(*(open_channel(group, dict, LIMIT, "RNA") for _ in range(3)))
        self.thread = ProcessThread(program, channels, LIMIT, "RNA")

    def start(self):
        self.thread.start()

    def deposit(self, gradient, version):
        self._drive(self.training.deposit(gradient, version))

    def wait(self):
        self._drive(self.training.wait())

    def collect(self):
        return self._drive(self.training.collect())

    def close(self):
        """All rounds; those that have not been collected are still to be."""
        self._drive(self.training.close())
        self.thread.join()

    def _drive(self, process):
        return self.thread.door.drive(process)
