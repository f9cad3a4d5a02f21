"""A slice of the campaign: a few faults that a launcher does not see, or that it was told not to clean up after."""

from dataclasses import replace

import pytest
from campaign import strike_all, tabulate
from injection import PAUSE, draw

pytestmark = pytest.mark.launches

TIME_LIMIT = 5.0  # seconds; ranks may share their cores with many others
MERCY = 30.0  # seconds after it; only a job that hangs takes so long
SLICE = (
    ("training", "stop for ever"),
    ("RNA", "os._exit(1)"),
    ("RNA", PAUSE),
    ("reduce", "exception"),
    ("reduce", "stop for ever"),
    ("reduce", "os._exit(0)"),
    ("reduce", "sys.exit(1)"),
    ("reduce", PAUSE),
)


def test_no_fault_hangs_the_others_or_stays_unnoticed():
    injections = [
        # As the README starts it: nobody but us ends a job in which a rank has gone or stopped.
        replace(draw(1, number, *what, ranks=3), cleanup=False, with_mpi4py=False, pause=0.2)
        for number, what in enumerate(SLICE)
    ]
    outcomes = strike_all(injections, jobs=2, time_limit=TIME_LIMIT, mercy=MERCY)
    *_, total = tabulate(outcomes)
    assert not [(str(o.injection), o.verdict) for o in outcomes if o.verdict.is_bad]
    assert total["missed"] == 0
    # How many names are right is a share, which the whole campaign measures. Here chance must not decide.
    wrong = [text for o in outcomes for text in o.verdict.wrong]
    assert len(wrong) < total["named"] / 2, wrong
