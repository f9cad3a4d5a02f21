"""How long to wait for a peer."""

from spardl import environment


def time_limit(timeout: float | None) -> float:
    """Seconds to wait for a peer before giving up: ``timeout``, else ``SPARDL_TIMEOUT``, else five minutes."""
    if timeout is None:
        what, seconds = environment.TIMEOUT.name, environment.TIMEOUT.number()
    else:
        what, seconds = "timeout", float(timeout)
    if not seconds > 0:  # NaN is not
        raise ValueError(f"{what}: expected a number of seconds > 0 to wait for another rank, got {seconds:g}")
    return seconds
