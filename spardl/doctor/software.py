"""What is installed, and whether it is the same on all ranks."""

from collections.abc import Sequence

from spardl.agreement import by_value
from spardl.doctor.facts import Facts
from spardl.doctor.verdict import ADVICE, ERROR, OK, WARNING, Verdict


def code(everyone: Sequence[Facts]) -> Verdict:
    """spardl itself. Other Python code is an error when anything is built; other machine code may be intended."""
    first = everyone[0]
    if len({facts.code for facts in everyone}) > 1:
        return mixed_code([facts.code for facts in everyone], [_place(facts) for facts in everyone])
    if len({facts.extension for facts in everyone}) > 1:
        differing = by_value([facts.extension or "none" for facts in everyone])
        return Verdict(
            "spardl", WARNING, f"the compiled kernels differ: {differing}", "Build spardl once, for all hosts"
        )
    return Verdict("spardl", OK, f"{first.code}, {first.paths['spardl']}")


def _place(facts: Facts) -> str:
    return f"{facts.host}:{facts.paths['spardl']}"


def mixed_code(codes: list[str], places: list[str]) -> Verdict:
    """By rank. With other code nothing else that a rank tells can be relied on."""
    odd = next(rank for rank, told in enumerate(codes) if told != codes[0])
    what = f"the ranks run different code: {by_value(codes)} ({places[0]} and {places[odd]})"
    return Verdict("spardl", ERROR, what, "Install the same spardl on every host")


def mpi(everyone: Sequence[Facts]) -> Verdict:
    first = everyone[0]
    names = [facts.mpi for facts in everyone]
    if len(set(names)) > 1:
        return Verdict("MPI", ERROR, f"the ranks use different ones: {by_value(names)}", "Load the same on every host")
    mpi4py = f"mpi4py {first.packages['mpi4py']}, {first.paths['mpi4py']}"
    return Verdict("MPI", OK, f"{first.mpi}, {first.mpi_path or 'path unknown'}; {mpi4py}")


def threads(everyone: Sequence[Facts]) -> Verdict:
    levels = [facts.mpi_thread_level for facts in everyone]
    if all(level == "MULTIPLE" for level in levels):
        return Verdict("threads", OK, "MPI_THREAD_MULTIPLE")
    lowest = next(level for level in levels if level != "MULTIPLE")
    todo = "For RNA leave mpi4py.rc.thread_level alone, and use an MPI that was built for threads"
    return Verdict("threads", WARNING, f"MPI_THREAD_{lowest}: all works but RNA", todo)


def packages(everyone: Sequence[Facts]) -> Verdict:
    first = everyone[0]
    installed = {"Python": first.python, **first.packages}
    shown = ", ".join(f"{name} {version}" for name, version in installed.items() if name not in ("spardl", "mpi4py"))
    for name in ("Python", "numpy", "numba", "torch"):
        versions = [facts.python if name == "Python" else facts.packages.get(name, "none") for facts in everyone]
        if len(set(versions)) > 1:
            return Verdict("packages", WARNING, f"{name} differs: {by_value(versions)}", "Install the same everywhere")
    if "torch" not in first.packages:
        return Verdict("packages", ADVICE, f"{shown}, no torch", "To train with torch: `pip install torch`")
    return Verdict("packages", OK, f"{shown}, {first.paths['torch']}")


def kernels(everyone: Sequence[Facts]) -> Verdict:
    """Ranks may have different ones: they agree to the bit."""
    for facts in everyone:
        if facts.backend_error:
            return Verdict("kernels", ERROR, f"rank {facts.rank}: {facts.backend_error}")
    shown = [f"{facts.backend} {facts.simd}".strip() for facts in everyone]
    what = shown[0] if len(set(shown)) == 1 else by_value(shown)
    backends = {facts.backend for facts in everyone}
    if "numpy" in backends:
        return Verdict("kernels", WARNING, f"{what}: numpy's are for comparison, and slow", "Unset SPARDL_BACKEND")
    if "numba" in backends:
        todo = "For full speed install a C++17 compiler, then spardl again"
        return Verdict("kernels", ADVICE, f"{what}: compiled at first use", todo)
    return Verdict("kernels", OK, what)
