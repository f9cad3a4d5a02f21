"""A disk that is full, as far as this process can tell."""

import contextlib
import resource


@contextlib.contextmanager
def full_after(size):
    """Files cannot grow beyond ``size`` bytes meanwhile: whoever tries gets an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
