"""Every judge: silent about a healthy job, and with a sentence that says what to do about each misconfiguration."""

import pytest
from doctor.healthy import job, spoil

from spardl.doctor import clocks, cores, devices, launching, memory, selftest, software
from spardl.doctor.selftest import Outcome
from spardl.doctor.verdict import Verdict, is_fit

JUDGES = [
    *(launching.ranks, launching.mpiexec),
    *(software.mpi, software.threads, software.code, software.packages, software.kernels),
    *(cores.binding, cores.load, cores.spinning, memory.shared_memory, devices.gpu),
]


@pytest.mark.parametrize("judge", JUDGES)
def test_a_healthy_job(judge):
    verdict = judge(job())
    assert (verdict.level, verdict.todo) == ("ok", "")
    assert verdict.what


ALONE = {"size": 1, "launched_ranks": 4}
NO_SLURM_PMI = ALONE | {"launched_by": "srun", "launched_protocol": "nothing"}
OPEN_MPI = {"mpi": "Open MPI 5.0.11", "mpi_family": "Open MPI"}
ALL_CORES = {"cores": [0, 1], "host_cores": 2}


@pytest.mark.parametrize(
    ("judge", "everyone", "level", "what", "todo"),
    [
        (launching.ranks, job(1, 1, **NO_SLURM_PMI), "error", "srun started 4 processes, but", "`srun --mpi=pmi2`"),
        (launching.ranks, job(1, 1, **NO_SLURM_PMI | OPEN_MPI), "error", "each is alone", "`srun --mpi=pmix`"),
        (
            launching.ranks,
            job(1, 1, **ALONE, **OPEN_MPI),
            "error",
            "MPICH's mpiexec started 4",
            "Open MPI's own mpiexec, /",
        ),
        (launching.ranks, job(1, 1, launched_ranks=0), "advice", "one rank", "`mpirun -n 4`"),
        (launching.mpiexec, job(1, 1, **OPEN_MPI), "warning", "of MPICH, but mpi4py uses Open MPI", "/usr/bin/mpiexec"),
        (launching.mpiexec, job(1, 1, found_mpiexec=""), "advice", "none on the PATH", "srun"),
        (software.mpi, spoil(job(), 2, mpi="MPICH 4.2"), "error", "'MPICH 4.2' on rank 2", "Load the same"),
        (software.threads, job(mpi_thread_level="FUNNELED"), "warning", "MPI_THREAD_FUNNELED", "thread_level"),
        (
            software.code,
            spoil(job(), 3, code="0.9 with code x"),
            "error",
            "'0.9 with code x' on rank 3 (n0:/site",
            "Install",
        ),
        (software.code, spoil(job(), 1, extension=""), "warning", "'none' on rank 1", "Build spardl once"),
        (
            software.packages,
            spoil(job(), 1, packages={"numpy": "1.26"}),
            "warning",
            "numpy differs",
            "Install the same",
        ),
        (software.packages, job(packages={"mpi4py": "4", "numpy": "2"}), "advice", "no torch", "pip install torch"),
        (software.kernels, spoil(job(), 1, backend="", backend_error="no such"), "error", "rank 1: no such", ""),
        (software.kernels, spoil(job(), 1, backend="numba", simd=""), "advice", "'numba' on rank 1", "compiler"),
        (software.kernels, job(backend="numpy", simd=""), "warning", "slow", "Unset SPARDL_BACKEND"),
        (cores.binding, job(cores=[0]), "warning", "2 ranks of n0 may use no cores but 0 of its 64", "-bind-to core"),
        (cores.binding, job(cores=[0], launched_by="srun"), "warning", "of its 64", "--cpu-bind=cores"),
        (cores.binding, job(**ALL_CORES), "advice", "every rank may use all 2 cores", "mpiexec -bind-to core"),
        (cores.load, job(8, 2, **ALL_CORES), "warning", "4 ranks share 2 cores of n0", "a rank per core"),
        (cores.load, job(**ALL_CORES, threads=8), "warning", "16 threads of 2 ranks on 2 cores", "OMP_NUM_THREADS=1"),
        (cores.load, job(2, 1, cores=list(range(8)), threads=0), "warning", "not set", "OMP_NUM_THREADS=4"),
        (cores.spinning, job(8, 2, **ALL_CORES), "advice", "MPICH 5.0.2's own waits", "fewer ranks"),
        (cores.spinning, job(8, 2, **ALL_CORES, **OPEN_MPI), "warning", "own waits", "mpi_yield_when_idle=1"),
        (memory.shared_memory, job(shm_free=1_000_000), "error", "1.0 MiB free on n0", "--shm-size"),
        (memory.shared_memory, job(shm_free=8 * 2**20), "warning", "2 ranks of MPICH ask for 10", "--shm-size"),
        (memory.shared_memory, job(shm_free=8 * 2**20, **OPEN_MPI), "warning", "ask for 32", "--shm-size"),
        (devices.gpu, spoil(spoil(job(), 0, gpus=4), 1, gpus=4), "advice", "n0: 4, n1: 0", "GPUs on every node"),
    ],
)
def test_a_misconfiguration(judge, everyone, level, what, todo):
    verdict = judge(everyone)
    assert verdict.level == level, verdict
    assert what in verdict.what
    assert todo in verdict.todo
    assert is_fit([verdict]) == (level != "error")


def test_what_looks_odd_but_is_fine():
    assert cores.spinning(job(8, 2, **ALL_CORES, settings={"OMPI_MCA_mpi_yield_when_idle": "1"})).level == "ok"
    assert cores.load(job(2, 1, threads=0, packages={"numpy": "2"})).level == "ok"  # nothing there that takes all cores
    assert cores.load(job(2, 2, cores=list(range(8)), threads=0)).level == "ok"  # one rank on a host may
    assert memory.shared_memory(job(shm_free=-1)).what == "not there"
    late = spoil(job(4, 1), 3, shm_free=0)  # looked when the others' MPI had taken its part
    assert memory.shared_memory(late).level == "ok"
    assert "GPU memory" in devices.gpu(job(gpus=4, mpi_takes_gpu_memory=True)).what
    assert "host memory only" in devices.gpu(job(gpus=4)).what
    assert launching.mpiexec(job(**OPEN_MPI)).level == "advice"  # they are together, however they were started
    assert "(1 to 1 on each)" in launching.ranks(job(12, 12)).what


def test_network():
    assert devices.network(job(2, 1), [[], []]) == Verdict("network", "ok", "1 host; MPI loaded libfabric")
    chosen = job(settings={"FI_PROVIDER": "tcp"})
    assert devices.network(chosen, [["eth0"], []]).what == (
        "2 hosts; MPI loaded libfabric (FI_PROVIDER=tcp); TCP over eth0"
    )
    assert devices.network(job(), [[], []]).what.endswith("no TCP in use between hosts")
    slow = devices.network(job(fabrics=["mlx5_0"]), [["eth0"], []])
    assert (slow.level, "though there is mlx5_0" in slow.what) == ("advice", True)


@pytest.mark.parametrize(
    ("ahead", "level", "what"),
    [
        ({}, "ok", "one clock"),
        ({"n1": 2e-3, "n2": -1e-3}, "ok", "at most 3.00 ms apart; n1 is 2.00 ms ahead of"),
        ({"n1": 0.1}, "advice", "100.00 ms ahead of"),
        ({"n1": -3600.0}, "warning", "n1 is 3600.0 s behind"),
    ],
)
def test_clocks(ahead, level, what):
    verdict = clocks.skew(ahead)
    assert verdict.level == level
    assert what in verdict.what
    assert ("chrony" in verdict.todo) == (level != "ok")


def test_self_test():
    good = Outcome(0, "aa", 3e-3, 1e-3)
    assert selftest.law([good, good]).level == selftest.consensus([good, good]).level == "ok"
    assert selftest.law([good, Outcome(7, "aa", 1, 1)])[:3] == ("law", "error", "7 elements of the sum are wrong")
    differing = selftest.consensus([good, good, Outcome(0, "bb", 1, 1)])
    assert (differing.level, "'bb' on rank 2" in differing.what) == ("error", True)
    assert "takes 3.0 ms, 3 × copying" in selftest.speed([good, Outcome(0, "aa", 2e-3, 9e-4)]).what
