"""What can go wrong, by name, and how an error on one rank is told to the others without pickle."""

import json
from collections.abc import Sequence
from typing import Any


class NonFiniteGradient(ValueError):
    """A gradient, or the sum of gradient and residual, is NaN or infinite. Raised on every rank."""

    def __init__(self, message: str, *, rank: int, index: int) -> None:
        super().__init__(message)
        self.rank = rank
        self.index = index

    def among(self, members: Sequence[int]) -> "NonFiniteGradient":
        """The same, told to those who know the rank by its number in ``members``."""
        rank = members[self.rank]
        if rank == self.rank:
            return self
        text = str(self).replace(f"on rank {self.rank}", f"on rank {rank}")
        return NonFiniteGradient(text, rank=rank, index=self.index).with_traceback(self.__traceback__)


class DtypeDisagreement(TypeError):
    """Two ranks have gradients of different types; by rank, so that all tell of it in the same words."""

    def __init__(self, dtypes: dict[int, str]) -> None:
        (a, dtype_a), (b, dtype_b) = sorted(dtypes.items())
        super().__init__(f"ranks disagree on the gradient's dtype: {dtype_a} on rank {a}, {dtype_b} on rank {b}")
        self.dtypes = dtypes

    def among(self, members: Sequence[int]) -> "DtypeDisagreement":
        """The same, told to those who know the ranks by their numbers in ``members``."""
        dtypes = {members[rank]: dtype for rank, dtype in self.dtypes.items()}
        return DtypeDisagreement(dtypes).with_traceback(self.__traceback__)


# What collectives raise that tells of ranks, by their positions.
TELLS_OF_RANKS = (NonFiniteGradient, DtypeDisagreement)


class PeerTimeout(TimeoutError):
    """Some ranks did not answer in time; ``ranks`` says which."""

    def __init__(self, message: str, *, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks

    def with_text(self, message: str) -> "PeerTimeout":
        return PeerTimeout(message, ranks=self.ranks)


class PeerError(RuntimeError):
    """Another rank failed, with an error that has no type of its own here, or has left; ``ranks`` says which.

    ``gone``: MPI says that its process is gone, so it will not even end together with the others.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...] = (), gone: bool = False) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.gone = gone

    def with_text(self, message: str) -> "PeerError":
        return PeerError(message, ranks=self.ranks, gone=self.gone)


class OutOfStep(RuntimeError):
    """Ranks are not in the same call any more: one went on after a call that failed on another."""


class ReplicasDiffer(RuntimeError):
    """Ranks have different weights. Raised on every rank.

    ``ranks``: those that differ from the most; all of them where no weights are the most common. ``parameter``: the
    first one that differs.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...], parameter: str) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.parameter = parameter


class Deadlock(RuntimeError):
    """The loopback runtime found that no rank can move."""


class WireError(ValueError):
    """A message is not what this version of spardl writes."""


_TOLD_AS_THEMSELVES = (ValueError, TypeError, OutOfStep, WireError, MemoryError)


_LONGEST_TEXT = 500  # characters; a notice stays short enough to be sent eagerly by any MPI, even if all are escaped


def to_notice(error: BaseException) -> bytes:
    """``error`` as bytes that ``from_notice`` turns into the same error on another rank."""
    kind = TypeError if isinstance(error, DtypeDisagreement) else type(error)  # nobody renumbers what was told
    told: dict[str, Any] = {"type": kind.__name__, "text": str(error)[:_LONGEST_TEXT]}
    if isinstance(error, NonFiniteGradient):
        told |= {"rank": error.rank, "index": error.index}
    elif isinstance(error, PeerTimeout | PeerError):
        told |= {"ranks": error.ranks, "gone": says_gone(error)}
    return json.dumps(told).encode()


def from_notice(notice: bytes, sender: int) -> Exception:
    """The error that rank ``sender`` told us of."""
    try:
        return _from_notice(json.loads(notice), sender)
    except (ValueError, KeyError, TypeError):  # nothing that to_notice writes
        return PeerError(f"rank {sender} failed, with an error that cannot be read here", ranks=(sender,))


def _from_notice(told: dict[str, Any], sender: int) -> Exception:
    if told["type"] == NonFiniteGradient.__name__:
        return NonFiniteGradient(told["text"], rank=told["rank"], index=told["index"])
    if told["type"] == PeerTimeout.__name__:
        return PeerTimeout(told["text"], ranks=tuple(told["ranks"]))
    if told["type"] == PeerError.__name__:
        return PeerError(told["text"], ranks=tuple(told["ranks"]), gone=told["gone"])
    for kind in _TOLD_AS_THEMSELVES:
        if told["type"] == kind.__name__:
            return kind(f"rank {sender}: {told['text']}")
    return PeerError(f"rank {sender} failed with {told['type']}: {told['text']}", ranks=(sender,))


def says_gone(error: BaseException | None) -> bool:
    """Whether it says that a rank does not answer, so that MPI may not come to an end by itself."""
    return isinstance(error, PeerTimeout) or (isinstance(error, PeerError) and error.gone)
