"""Ranks of a benchmark that all run on this machine. Not run by itself."""

import os
import subprocess
import sys
from pathlib import Path

PYTHON = Path(sys.executable)


class OneHost:
    """All ranks here, under the mpiexec beside this Python or on the path."""

    def __init__(self, ranks: int, quiet: bool = False) -> None:
        self._ranks = ranks
        self._output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}

    def run(self, command: list[str], timeout: float) -> "subprocess.CompletedProcess[str]":
        """Its output is shown, or if ``quiet`` returned."""
        path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
        job = ["mpiexec", "-n", str(self._ranks), *command]
        environment = os.environ | {"PATH": path, "MPIEXEC_TIMEOUT": str(int(timeout))}
        return subprocess.run(job, env=environment, timeout=timeout + 30, check=False, text=True, **self._output)
