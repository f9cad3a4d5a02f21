"""MPI's own word that something is wrong: who is gone, where it tells (ULFM, part of MPI 5) or can be seen."""

from contextlib import suppress

from spardl.errors import PeerError
from spardl.runtime.group import Group
from spardl.runtime.library import MPI
from spardl.runtime.neighbour import State

_SAYS_GONE = {
    code
    for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
    if (code := getattr(MPI, name, MPI.UNDEFINED)) not in (MPI.UNDEFINED, MPI.ERR_UNKNOWN)
}


def as_peer_error(error: MPI.Exception, group: Group, call: str) -> PeerError:
    """The error for users, which names who is gone; nobody if that is not known: not the rank that MPI told of it."""
    text = error.Get_error_string().strip()
    known = failed_ranks(group.comm) if error.Get_error_class() in _SAYS_GONE else ()
    seen = (group.ranks[at] for at, state in group.neighbours().items() if state is State.GONE)
    ranks = known or tuple(sorted(seen))
    if not ranks:
        return PeerError(
            f"{call}: MPI cannot go on ({text}). The process of a rank, or its host, may be gone.", gone=True
        )
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    return PeerError(f"{call}: the process of {who} is stopped or dead. MPI says: {text}", ranks=ranks, gone=True)


def failed_ranks(comm: MPI.Intracomm) -> tuple[int, ...]:
    """Of this communicator, as far as this process knows; empty where MPI does not tell."""
    with suppress(MPI.Exception, NotImplementedError, AttributeError):
        failed, everyone = comm.Get_failed(), comm.Get_group()
        ranks = failed.Translate_ranks(range(failed.size), everyone)
        for group in (failed, everyone):
            group.Free()
        return tuple(sorted(ranks))
    return ()
