"""Facts of ranks with which nothing is wrong, to be spoilt by the tests."""

from dataclasses import replace

from spardl.doctor.facts import Facts

_ONE = Facts(
    rank=0,
    size=1,
    host="n0",
    python="3.12.1",
    packages={"spardl": "1.0", "mpi4py": "4.1.2", "numpy": "2.4", "numba": "0.68", "torch": "2.13"},
    paths={"spardl": "/site/spardl", "mpi4py": "/site/mpi4py", "torch": "/site/torch"},
    mpi="MPICH 5.0.2",
    mpi_family="MPICH",
    mpi_path="/usr/lib/libmpi.so.12",
    mpi_thread_level="MULTIPLE",
    code="1.0 with code abc",
    extension="def",
    backend="native",
    backend_error="",
    simd="avx2",
    launched_by="MPICH's mpiexec",
    launched_ranks=1,
    launched_protocol="PMI",
    own_mpiexec="/usr/bin/mpiexec",
    found_mpiexec="/usr/bin/mpiexec",
    found_family="MPICH",
    cores=[0],
    host_cores=64,
    threads=1,
    shm_free=2**34,
    gpus=0,
    mpi_takes_gpu_memory=False,
    fabrics=[],
    transports=["libfabric"],
    settings={},
)


def job(ranks=4, hosts=2, **spoilt):
    """``ranks`` on so many hosts, each bound to a core of its own; what is spoilt is so on all of them."""
    per_host = ranks // hosts
    healthy = [
        replace(_ONE, rank=r, size=ranks, launched_ranks=ranks, host=f"n{r // per_host}", cores=[r % per_host])
        for r in range(ranks)
    ]
    return [replace(facts, **spoilt) for facts in healthy]


def spoil(everyone, rank, **spoilt):
    """The same job with one odd rank."""
    return [replace(facts, **spoilt) if facts.rank == rank else facts for facts in everyone]
