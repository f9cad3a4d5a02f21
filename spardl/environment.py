"""Every SPARDL_… variable that is read, with its meaning. Code reads them here; ``spardl doctor --env`` lists them."""

import os
from typing import NamedTuple


class Variable(NamedTuple):
    """An empty variable counts as one that is not set."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        return os.environ.get(self.name) or self.default

    def number(self) -> float:
        """``get`` for variables that hold a number."""
        try:
            return float(self.get())
        except ValueError:
            raise ValueError(f"{self.name}: expected a number, got {self.get()!r}") from None


BACKEND = Variable(
    "SPARDL_BACKEND",
    "auto",
    "kernels: native, numba, numpy or cuda; auto takes native, or numba where it was not compiled, and cuda on a GPU",
)
GPU_MESSAGES = Variable(
    "SPARDL_GPU_MESSAGES",
    "auto",
    "direct hands a GPU's memory to MPI, host copies entries to the host first; auto asks MPI if it can",
)
PROFILE = Variable("SPARDL_PROFILE", "", 'a file of `spardl cost measure` for algorithm="auto" and teams="auto"')
PLACES = Variable(
    "SPARDL_PLACES",
    "auto",
    "1 or 4: in how many places of a gradient compiled kernels read in turns; auto goes by the processor's make",
)  # read in csrc/simd.cpp
SIMD = Variable("SPARDL_SIMD", "auto", "portable switches AVX2 off")  # read in csrc/simd.cpp
STALL_WARNING = Variable(
    "SPARDL_STALL_WARNING", "30", "seconds of waiting after which rank 0 prints who is missing; 0 switches it off"
)
TIMELINE = Variable("SPARDL_TIMELINE", "", "a file to which a timeline of all ranks is written, for Perfetto")
TIMEOUT = Variable("SPARDL_TIMEOUT", "300", "seconds to wait for a peer before giving up")

VARIABLES = (BACKEND, GPU_MESSAGES, PLACES, PROFILE, SIMD, STALL_WARNING, TIMELINE, TIMEOUT)
