"""Profiles of imaginary clusters."""

from spardl.cost.profile import Line, Profile

# On one core of a desktop, roughly.
GAMMA = {
    "accumulate": 0.5e-9,
    "select": 4e-9,
    "pack": 2e-9,
    "unpack": 3e-9,
    "overlay": 5e-9,
    "settle": 5e-9,
    "correct": 1e-9,
    "add": 4e-9,
    "add_dense": 0.5e-9,
    "check": 0.1e-9,
    "call": 100e-6,
    "frame": 15e-6,
    "round": 20e-6,
}


def profile(ranks, alpha, beta, library=1.0):
    """``library``: how many times longer its all-reduce takes than the best there can be."""
    line = Line(alpha, beta)
    moved = 2 * (ranks - 1) / ranks
    sums = Line(2 * alpha * (ranks - 1).bit_length() * library, moved * beta * library)
    return Profile(ranks, line, line, sums, gamma=GAMMA)


def ethernet(ranks, **options):
    return profile(ranks, 50e-6, 1 / 110e6, **options)


def slow_latency(ranks):
    return profile(ranks, 5e-3, 1 / 1e9)


def shared_memory(ranks):
    return profile(ranks, 1e-6, 1 / 50e9)
