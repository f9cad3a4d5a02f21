"""Which ranks are asked whether they are ready: RNA starts a round when the first of a few random ones is."""

import numpy as np
import numpy.typing as npt

from spardl import chance


def draw_probes(seed: int, round: int, ranks: int, q: int) -> tuple[int, ...]:
    """``q`` different ranks for a round, all equally likely, in the order drawn; all ranks if ``q`` is more.

    The same on every rank. The first of them are those that a smaller ``q`` would draw.
    """
    if ranks < 1 or q < 1:
        raise ValueError(f"draw_probes: expected ranks and q of at least 1, got ranks = {ranks}, q = {q}")
    # A shuffle that stops after q steps and notes only the places that it changed, whatever the number of ranks.
    moved: dict[int, int] = {}
    drawn = []
    for place in range(min(q, ranks)):
        other = place + chance.below(ranks - place, "probe", seed, round, place)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return tuple(drawn)


def response_seconds(ready: npt.NDArray[np.float64], most: int, seed: int) -> npt.NDArray[np.float64]:
    """How long rounds wait for the first of 1, 2, … ``most`` probed ranks, by round and number of probes.

    ``ready`` is when each rank is, by round and rank. Messages take no time.
    """
    rounds, ranks = ready.shape
    if not 1 <= most <= ranks:
        raise ValueError(f"response_seconds: most: expected from 1 to the {ranks} ranks, got {most}")
    probed = np.array([draw_probes(seed, number, ranks, most) for number in range(rounds)])
    return np.minimum.accumulate(np.take_along_axis(ready, probed, axis=1), axis=1)
