"""A program that ends by an exception on one rank: the others do not wait for it until their time is up."""

import pytest

from mpi.launcher import launch

pytestmark = pytest.mark.launches


@pytest.mark.parametrize("where", ["between", "in"])
def test_others_raise_what_a_rank_left_by(where):
    done = launch(3, "leaves.py", where)
    assert done.returncode != 0
    assert done.stdout.count("rank done") == 2, done.stdout[-4000:]
    assert "KeyError: 'no such file'" in done.stdout
