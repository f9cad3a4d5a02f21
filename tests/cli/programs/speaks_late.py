"""All ranks fail together, and rank 0 takes its time to say why."""

import time

import click
from mpi4py import MPI

from spardl.cli.ending import fail_together


class Late(click.ClickException):
    exit_code = 3

    def show(self, file=None):
        time.sleep(0.5)
        super().show(file)


fail_together(MPI.COMM_WORLD, Late("this is why"))
