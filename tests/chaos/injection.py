"""What is done to which job, and when: drawn from a seed, so that any single injection can be made again."""

import signal
from dataclasses import dataclass
from random import Random
from typing import Any

WORKLOADS = ("reduce", "training", "RNA")

PAUSE = "stop for a time"
SIGNALS = {"kill": signal.SIGKILL, PAUSE: signal.SIGSTOP, "stop for ever": signal.SIGSTOP}
# These the rank does itself, when it gets SIGUSR2: wherever it is, or at its next step.
OWN_DEEDS = ("os._exit(0)", "os._exit(1)", "sys.exit(1)", "exception")
FAULTS = (*SIGNALS, *OWN_DEEDS)
# After these the launcher ends the job, unless it was told not to.
CLEANED_UP = ("kill", "os._exit(0)", "os._exit(1)")

READY, FINISHING = "ready", "finishing"
RNA_PATIENCE = 0.5  # seconds; see programs/trains.py

_REDUCERS: tuple[dict[str, Any], ...] = (
    {},
    {"algorithm": "spardl", "teams": "P"},
    {"algorithm": "oktopk"},
    {"algorithm": "gtopk"},
    {"algorithm": "topk_dsa"},
    {"algorithm": "dense_ring"},
    {"algorithm": "dense_mpi"},
)


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault in one job."""

    number: int
    workload: str
    fault: str
    ranks: int
    victim: int
    moment: str | int  # what the victim tells before it is struck: a step, or that it is ready or finishing
    delay: float  # seconds from there
    pause: float  # seconds, as a share of the time limit
    between: bool  # an own deed happens between two steps, not wherever the rank is
    cleanup: bool  # the launcher ends the job when a rank is gone
    with_mpi4py: bool  # started as `python -m mpi4py`, which aborts the job on an exception
    warns: bool  # the stall inspector is at work
    options: dict[str, Any]  # of the program

    @property
    def program(self) -> str:
        return "reduces.py" if self.workload == "reduce" else "trains.py"

    @property
    def arguments(self) -> dict[str, Any]:
        return self.options | {"fault": self.fault, "between": self.between}

    @property
    def patience(self) -> float:
        """Seconds by which a fault may be noticed later than after the time limit."""
        return 2 * RNA_PATIENCE if self.workload == "RNA" else 0.0

    def __str__(self) -> str:
        where = f"rank {self.victim} of {self.ranks} at {self.moment} + {1000 * self.delay:.0f} ms"
        how = ["-m mpi4py"] * self.with_mpi4py + ["no clean-up"] * (not self.cleanup) + ["warns"] * self.warns
        return f"{self.number}: {self.workload}, {self.fault}, {where}, {self.options} {', '.join(how)}"


def draw(
    seed: int, number: int, workload: str | None = None, fault: str | None = None, ranks: int | None = None
) -> Injection:
    """Injection ``number`` of a campaign. Workloads and faults take turns; what is not given otherwise is chance."""
    random = Random(f"{seed}/{number}")
    fault = fault or FAULTS[number % len(FAULTS)]
    workload = workload or WORKLOADS[number // len(FAULTS) % len(WORKLOADS)]
    ranks = ranks or random.choice((3, 4))
    options = _options(random, workload, ranks)
    early, late = random.random() < 0.1, workload == "RNA" and random.random() < 0.1
    step = random.randrange(options["steps"] // 2)
    return Injection(
        number=number,
        workload=workload,
        fault=fault,
        ranks=ranks,
        victim=random.randrange(ranks),
        moment=FINISHING if late else READY if early else step,
        delay=random.choice((0.0, random.uniform(0, 0.03))),
        pause=random.uniform(0.1, 0.5),
        between=random.random() < 0.5 and not late,  # after the last step there is no next
        cleanup=fault not in CLEANED_UP or random.random() < 0.5,
        with_mpi4py=random.random() < 0.5,
        warns=random.random() < 0.5,
        options=options,
    )


def _options(random: Random, workload: str, ranks: int) -> dict[str, Any]:
    if workload == "training":
        return {"steps": 200, "pace": 5e-3}
    if workload == "RNA":
        return {
            "steps": 200,
            "pace": 5e-3,
            "sync": random.choice(("RNA, dense", "RNA, sparse", "Partial Reduce", "Hop", "gossip")),
        }
    reducer = {name: ranks if value == "P" else value for name, value in random.choice(_REDUCERS).items()}
    if random.random() < 0.5:  # large messages, which MPI does not send before the receiver is there
        return {"steps": 300, "pace": 0.0, "size": 200_000, "reducer": reducer}
    return {"steps": 200, "pace": 5e-3, "size": 1000, "reducer": reducer}
