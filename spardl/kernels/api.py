"""What every kernel backend offers.

Conventions shared by all functions:

* a sparse vector is a pair of equally long arrays: strictly increasing integer ``indices`` (int32 or int64) and
  ``values`` (float32 or float64); both stay in the types they came in;
* "largest" means by absolute value, ties going to the lower index, and an exact zero is never selected;
* inputs are trusted (validated at the package's boundary), never modified unless the name says so, and results are
  fresh arrays. What other ranks have written is not: ``unpack`` and ``Arrays.place_many`` check it as they read it;
* ``…_many`` does for several blocks, at least one, what the kernel of that name does for one. Where starting work costs
  more than the work, as on a GPU, blocks that are at hand together should be done together.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Indices: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[Any]
Pair: TypeAlias = tuple[Indices, Values]
Words: TypeAlias = npt.NDArray[np.uint64]
Packable: TypeAlias = tuple[Indices, int, int]  # the arguments of ``pack``: indices, base, bits
Packed: TypeAlias = tuple[Words, Words, int, int, int]  # and of ``unpack``: low, high, count, base, bits
Stored: TypeAlias = tuple[Indices, int, int]  # indices relative to the start of a block, its base and its length

INDEX_LIMIT = 2**62  # no index reaches this, so that sums which are too large are noticed in 64 bits


class Selected(NamedTuple):
    """What ``select`` chose, and whether it had enough to choose from."""

    indices: Indices
    values: Values
    threshold: float  # magnitude of the k-th largest, 0.0 when fewer than k were found
    found: int  # how many entries stood at or above the floor
    largest: float  # magnitude of the largest, 0.0 when none was found; NaN and infinity come out here


class Split(NamedTuple):
    """A sparse vector cut in two: its k largest entries, and the rest."""

    indices: Indices
    values: Values
    rest_indices: Indices
    rest_values: Values


class Messages(Protocol):
    """Memory that messages are written in, sent from and received into: the host's, or a GPU's where MPI reads that.

    Bytes in a GPU's memory have ``len``, ``nbytes`` and slices as an array of uint8 has; ``spardl.effects.fronts``
    reads the first of them.
    """

    def load(self, *arrays: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        """A backend's arrays as parts of a message."""

    def unload(self, frames: Sequence[Any]) -> Sequence[npt.NDArray[np.uint8]]:
        """Frames that have arrived as a backend's arrays, which begin where any type may."""

    def frame(self, header: npt.NDArray[np.uint8], parts: Sequence[npt.NDArray[Any]]) -> Any:
        """The bytes of a header of the host's and of loaded parts, each padded with zeros to a multiple of eight."""

    def seal(self, parts: Sequence[Any]) -> Any:
        """Frames and bytes of the host's as one message, which MPI may read."""

    def inbox(self, count: int) -> Any:
        """Room for a message, which MPI may write."""

    def handle(self, message: Any) -> Any:
        """What MPI is handed."""

    def opened(self, message: Any) -> Any:
        """A message that has arrived, or has been opened before: bytes that are not to be written any more."""


class Arrays(Protocol):
    """Where a backend's arrays live, and what is done with them beside kernels.

    Arrays of a GPU have ``len``, ``dtype``, slices and ``view`` as NumPy's have; nothing else may be relied on.
    """

    messages: Messages

    def empty(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]: ...

    def zeros(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]: ...

    def lasting(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Zeros, for an array that is kept and passed over often."""

    def concatenate(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """One-dimensional arrays of one dtype, one after the other."""

    def to_host(self, *arrays: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        """The same in NumPy: copies, or the arrays themselves if that is what they are."""

    def from_host(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The way back."""

    def assign(self, dense: Values, host: npt.NDArray[Any]) -> None:
        """``dense`` becomes a copy of a NumPy array."""

    def divide(self, values: Values, divisor: int) -> Values: ...

    def subtract(self, values: Values, others: Values) -> Values: ...

    def shift(self, indices: Indices, by: int, dtype: npt.DTypeLike) -> Indices:
        """``indices + by`` as ``dtype``, which can hold that."""

    def place_many(self, blocks: Sequence[Stored], dtype: npt.DTypeLike) -> list[Indices]:
        """The indices of each block, from its base on, as ``dtype``, which can hold them.

        Raises ValueError unless those of a block increase strictly and are below its length.
        """

    def narrow(self, values: Values, coding: str) -> npt.NDArray[np.uint16]:
        """Nearest 16-bit number, ties to even; what would overflow becomes the largest finite one."""

    def widen(self, codes: npt.NDArray[np.uint16], coding: str, dtype: npt.DTypeLike) -> Values:
        """The way back, exact."""

    def all_finite(self, values: Values) -> bool: ...

    def count_nonzero(self, values: Values) -> int: ...

    def clear_at(self, dense: Values, indices: Indices) -> None:
        """``dense[indices] = 0``, in place."""

    def write_mean(self, dense: Values, indices: Indices, values: Values, ranks: int, scale: float) -> None:
        """``dense`` becomes zero but at ``indices``, and there ``values / ranks * scale``."""

    def adopt(self, array: Any, call: str, name: str, stream: int | None) -> Values:
        """A user's array as one of these, without a copy. Raises TypeError or ValueError if it is elsewhere.

        Errors call it the argument ``name`` of ``call``. ``stream`` is the CUDA stream that it was written on,
        by default the one that is current for CuPy.
        """


class FrameCoder(Protocol):
    """Compiled code for the frames of ``spardl.wire``, all of a message in one call."""

    def write_frame(
        self, vector: Pair, block: tuple[int, int], coding: str, dtype: int, value_coding: int
    ) -> npt.NDArray[np.uint8]:
        """Of a vector whose values are as they are stored, with the base and length of its block."""

    def write_message(
        self,
        vectors: Sequence[Pair],
        blocks: Sequence[tuple[int, int]],
        coding: str,
        dtype: int,
        value_coding: int,
        front: int,
    ) -> npt.NDArray[np.uint8]:
        """The message of the frames of several vectors, behind so many bytes that are anybody's."""

    def read_frames(
        self, frames: Sequence[npt.NDArray[np.uint8]], wide: bool
    ) -> list[tuple[int, int, int, int, Indices, npt.NDArray[Any]]]:
        """Base, length, codes of dtype and of the values' coding, indices, values as stored. Or raises ValueError."""

    def read_message(
        self, message: npt.NDArray[np.uint8], expected: int, wide: bool
    ) -> list[tuple[int, int, int, int, Indices, npt.NDArray[Any]]]:
        """The same of all frames of a message, of which there must be ``expected``."""


class Corrector(Protocol):
    """Compiled code that writes into a residual what a reduce leaves behind when the next one passes over it.

    Writes here and there wait for memory, each for itself; in the pass that memory is at hand.
    """

    def corrections(self, wanted: Sequence[Indices], received: Sequence[Pair], sent: Sequence[Pair]) -> Pair:
        """At the wanted indices of each block what was sent, else what was received: of all blocks, which follow one
        another, in one vector.
        """

    def accumulate_corrected(
        self,
        blocks: Sequence[int],
        grad: Values,
        residual: Values,
        out: Values,
        bounds: npt.NDArray[np.int64],
        floors: Values,
        starts: npt.NDArray[np.int64],
        indices: Indices,
        values: Values,
        correction_indices: Indices,
        correction_values: Values,
    ) -> tuple[list[int], int]:
        """``Kernels.accumulate``, after the corrections of these blocks were written into ``residual``."""


class Kernels(Protocol):
    """One backend. Implementations are modules' ``KERNELS`` objects; see the package docstring for the choice."""

    name: str
    arrays: Arrays
    frames: FrameCoder | None  # else ``spardl.wire`` puts them together from ``pack`` and ``unpack``
    corrector: Corrector | None  # else a residual is complete when a reduce ends

    def accumulate(
        self,
        blocks: Sequence[int],
        grad: Values,
        residual: Values,
        out: Values,
        bounds: npt.NDArray[np.int64],
        floors: Values,
        starts: npt.NDArray[np.int64],
        indices: Indices,
        values: Values,
    ) -> tuple[list[int], int]:
        """One pass over ``blocks``: ``out = grad + residual``, and the entries of block j at or above ``floors[j]`` set
        aside.

        ``out`` must not overlap the inputs. Block j is ``bounds[j]:bounds[j+1]``; its candidates go to ``indices`` and
        ``values`` from ``starts[j]`` on, at most up to ``starts[j+1]``. Returns how many each has, in the order of
        ``blocks`` (more than fit means: not all were stored), and the lowest index whose sum is NaN or infinite, or -1.
        If there is one, the candidates and their numbers mean nothing.
        """

    def topk_dense(self, dense: Values, k: int, base: int, index_dtype: npt.DTypeLike) -> Pair:
        """The k largest of a dense block whose first element has index ``base``, in index order."""

    def select(
        self, indices: Indices, values: Values, over_indices: Indices, over_values: Values, k: int, floor: float
    ) -> Selected:
        """The k largest among those entries at or above ``floor`` (> 0) of a sparse vector overridden by another."""

    def topk_dense_many(
        self, dense: Values, bounds: Sequence[tuple[int, int]], ks: Sequence[int], index_dtype: npt.DTypeLike
    ) -> list[Pair]:
        """Block i is ``dense`` from ``bounds[i][0]`` to ``bounds[i][1]``."""

    def select_many(
        self, vectors: Sequence[Pair], overs: Sequence[Pair], ks: Sequence[int], floors: Sequence[float]
    ) -> list[Selected]: ...

    def split(self, indices: Indices, values: Values, k: int) -> Split:
        """The k largest of a sparse vector, and what is left."""

    def add(self, indices_a: Indices, values_a: Values, indices_b: Indices, values_b: Values) -> Pair:
        """Sum of two sparse vectors over the union of their indices; a zero sum stays as an entry."""

    def add_many(self, vectors: Sequence[Pair]) -> Pair:
        """((first + second) + third) + …, index by index in that order. At least one vector."""

    def overlay(
        self, over_indices: Indices, over_values: Values, dense: Values, indices: Indices, values: Values
    ) -> Pair:
        """``dense`` overridden by ``over``, plus a sparse vector: returned where either of the two has an index."""

    def overlay_many(self, overs: Sequence[Pair], dense: Values, vectors: Sequence[Pair]) -> list[Pair]: ...

    def scatter_add(self, dense: Values, indices: Indices, values: Values) -> None:
        """``dense[indices] += values``, in place."""

    def overwrite_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        """``dense[i] = values[i]`` for those ``indices`` that are also ``wanted``, in place."""

    def overwrite_where_many(self, dense: Values, wanted: Sequence[Indices], vectors: Sequence[Pair]) -> None:
        """Blocks follow one another: all indices of one are below those of the next."""

    def add_where(self, dense: Values, wanted: Indices, indices: Indices, values: Values) -> None:
        """``dense[i] += values[i]`` for those ``indices`` that are also ``wanted``, in place."""

    def pack(self, indices: Indices, base: int, bits: int) -> tuple[Words, Words]:
        """Gaps between indices as two bit streams in little-endian 64-bit words.

        The gap before entry i is ``indices[i] - indices[i-1] - 1`` (for the first: ``indices[0] - base``). Its low
        ``bits`` bits stand at bit ``i * bits`` of the first stream; the rest, q, in unary in the second.
        Raises ValueError for indices that do not increase from ``base`` on.
        """

    def pack_many(self, blocks: Sequence[Packable]) -> list[tuple[Words, Words]]: ...

    def unpack(
        self,
        low: npt.NDArray[np.uint64],
        high: npt.NDArray[np.uint64],
        count: int,
        base: int,
        bits: int,
        index_dtype: npt.DTypeLike,
        end: int = INDEX_LIMIT,
    ) -> Indices:
        """Undo ``pack``. Raises ValueError when ``high`` holds fewer than ``count`` ones, or an index is not below
        ``end``.
        """

    def unpack_many(
        self, blocks: Sequence[Packed], index_dtype: npt.DTypeLike, ends: Sequence[int] | None = None
    ) -> list[Indices]: ...
