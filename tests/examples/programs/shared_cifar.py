"""``shared_cifar.py FOLDER``: what rank 0 reads and shares is what every rank would have read."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(1, str(Path(__file__).parents[3] / "examples"))
import cifar_data

folder = Path(sys.argv[1])
shared, read = cifar_data.load_shared(MPI.COMM_WORLD, folder, 5), cifar_data.load(folder)
for got, expected in zip(shared, (read[0][:5], read[1][:5], *read[2:]), strict=True):
    np.testing.assert_array_equal(got, expected, strict=isinstance(expected, np.ndarray))
