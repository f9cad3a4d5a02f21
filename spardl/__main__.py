"""``python -m spardl`` is the ``spardl`` command, for where scripts are not on the PATH."""

from spardl.cli import main

main(prog_name="spardl")
