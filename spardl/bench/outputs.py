"""Files that a long command writes at its end: tried before it begins, and never a reason to lose what it has done."""

from collections.abc import Callable
from pathlib import Path

from spardl.bench import figure, ranks
from spardl.runtime.library import MPI


def trouble_ahead(comm: MPI.Intracomm, *files: Path | None, picture: Path | None = None) -> str:
    """Why rank 0 cannot write these; empty if it can. All ranks call this; hosts need not share a file system."""
    mine = ""
    if comm.rank == 0:
        found = [_trouble(path) for path in files if path is not None]
        if picture is not None:
            found += [figure.trouble(picture) or _trouble(picture)]
        mine = next(filter(None, found), "")
    return ranks.gather_texts(comm, mine)[0]


def trouble_writing(path: Path, write: Callable[[], object]) -> str:
    """Calls ``write``; why it failed, or empty if it did not."""
    try:
        write()
    except (OSError, ImportError) as error:
        return f"{path} cannot be written: {error}"
    return ""


def _trouble(path: Path) -> str:
    """Opens the file for writing, and leaves everything as it was."""
    was_there = path.exists()
    try:
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        return f"{path} cannot be written: {error}"
    return ""
