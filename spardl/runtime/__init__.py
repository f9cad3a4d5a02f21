"""What answers the generators: real MPI ranks, or all ranks in one process."""
