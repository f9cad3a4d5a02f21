"""A state that is damaged is a ValueError, and leaves what it was to be loaded into as it was."""

import numpy as np
import pytest
from configurations import Setup
from damaged_state import assert_refused
from mpi4py import MPI

import spardl
from spardl.allreduce import ALGORITHMS


def build(**options):
    return spardl.SparseAllreduce(MPI.COMM_SELF, 60, k=6, **options)


def used(reduces, **options):
    allreduce = build(**options)
    for number in range(reduces):
        allreduce.reduce(np.random.default_rng(number).standard_normal(60).astype(np.float32))
    return allreduce


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_damage_of_every_algorithms_state(algorithm):
    good, other = used(3, algorithm=algorithm), used(2, algorithm=algorithm)
    assert assert_refused(other.load_state_dict, other.state_dict, good.state_dict()) > 40


@pytest.mark.parametrize("sag", ["b", "r"])
def test_every_damage_of_a_state_among_teams(sag):
    setup = Setup(8, 4, sag, 200, 40, "float32", "auto", 1, None)
    good, other = setup.reducers(["native"]), setup.reducers(["native"])
    for reducers, seed in ((good, 1), (other, 2)):
        for _ in range(4):
            setup.reduce(reducers, setup.float_gradients(np.random.default_rng(seed)))
    new = other[0]
    harmless = [
        (("width", 3), "replaced by None"),  # as before the first reduce
        ((), "one too many"),  # a reducer is handed the state of its façade, which knows all the names
    ]
    assert assert_refused(new.load_state_dict, new.state_dict, good[0].state_dict(), harmless) > 40
    for width in ((1, 1, False, 2), (10**9, 1, False, 2), (5, 0, False, 2), (5, 2**60, False, 2), (5, 1, False, -1)):
        with pytest.raises(ValueError, match="load_state_dict"):
            new.load_state_dict(good[0].state_dict() | {"width": width})
    for wrong in (-1.0, 1e300):
        thresholds = good[0].state_dict()["thresholds"]
        thresholds[1] = wrong
        with pytest.raises(ValueError, match="sound growth and slack"):
            new.load_state_dict(good[0].state_dict() | {"thresholds": thresholds})


def test_a_residual_that_is_not_finite_is_named():
    allreduce = used(1)
    state = allreduce.state_dict()
    state["residual"][7] = np.inf
    with pytest.raises(ValueError, match="a residual has 1 values that are not finite, of 60"):
        build().load_state_dict(state)
    with pytest.raises(ValueError, match="the residual has 1 values that are not finite"):
        build().start_from(state["residual"])
