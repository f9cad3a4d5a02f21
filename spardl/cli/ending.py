"""How a command ends when it has failed: rank 0 says why, and only then does anybody leave.

A rank that leaves with an exit code other than 0 may take the others with it at once (under ``python -m mpi4py`` it
does), and what they had still to say would be lost.
"""

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from spardl.runtime.output import let_be_read

if TYPE_CHECKING:
    from mpi4py import MPI


def fail_together(comm: "MPI.Intracomm", error: click.ClickException) -> NoReturn:
    """All ranks call this with the same error; rank 0 shows it."""
    if comm.rank == 0:
        error.show()
    exit_together(comm, error.exit_code)


def exit_together(comm: "MPI.Intracomm", code: int) -> NoReturn:
    """All ranks call this with the same code, after they have said everything."""
    from spardl.bench import ranks

    if code:  # nobody is ended by a rank that leaves in peace
        let_be_read()
    ranks.wait_for_all(comm)
    sys.exit(code)


def end_job(comm: "MPI.Intracomm", code: int) -> NoReturn:
    """Where other ranks do not answer, and would keep MPI from ending: ends them, too."""
    let_be_read()
    comm.Abort(code)
