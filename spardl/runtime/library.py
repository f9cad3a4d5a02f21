"""MPI, or a sentence that says how to get it: what people import first takes it from here."""

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # mpi4py is missing; or it is here, and finds no MPI library
    raise ImportError(
        "spardl needs mpi4py and an MPI library, and Python cannot load them: "
        f"{' '.join(str(error).split())}. On a cluster load its MPI module; elsewhere `pip install mpi4py mpich` "
        "brings both. If the library is in an unusual place, MPI4PY_LIBMPI names it.",
        name="mpi4py",
    ) from None

__all__ = ["MPI"]
